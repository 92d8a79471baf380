-- What policies decided of each consumer and tenant, minute by minute, for a day. An empty name is an absent one; of all three
-- empty is everybody for whom there was no room.
CREATE TABLE usage_minutes (
    minute timestamptz NOT NULL,
    policy text COLLATE "C" NOT NULL,
    consumer text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    admitted bigint NOT NULL,
    denied bigint NOT NULL,
    units bigint NOT NULL,
    PRIMARY KEY (consumer, policy, minute, tenant)
);
CREATE INDEX usage_minutes_tenant ON usage_minutes (tenant, policy, minute);
CREATE INDEX usage_minutes_minute ON usage_minutes (minute);

-- What nodes have added to it, so that nothing is added twice.
CREATE TABLE usage_batches (
    id text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL
);
CREATE INDEX usage_batches_at ON usage_batches (at);
