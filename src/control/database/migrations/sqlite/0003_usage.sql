-- What policies decided of each consumer and tenant, minute by minute, for a day. An empty name is an absent one; of all three
-- empty is everybody for whom there was no room.
CREATE TABLE usage_minutes (
    minute INTEGER NOT NULL,
    policy TEXT NOT NULL,
    consumer TEXT NOT NULL,
    tenant TEXT NOT NULL,
    admitted INTEGER NOT NULL,
    denied INTEGER NOT NULL,
    units INTEGER NOT NULL,
    PRIMARY KEY (consumer, policy, minute, tenant)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_minutes_tenant ON usage_minutes (tenant, policy, minute);
CREATE INDEX usage_minutes_minute ON usage_minutes (minute);

-- What nodes have added to it, so that nothing is added twice.
CREATE TABLE usage_batches (
    id TEXT PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_batches_at ON usage_batches (at);
