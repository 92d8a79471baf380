-- Since when consumers and tenants are counted anew: counts themselves are in memory and in Redis.
CREATE TABLE count_resets (
    id text COLLATE "C" PRIMARY KEY,
    user_id text COLLATE "C" CHECK (length(user_id) BETWEEN 1 AND 256),
    tenant_id text COLLATE "C" CHECK (length(tenant_id) BETWEEN 1 AND 256),
    policy text COLLATE "C" CHECK (length(policy) BETWEEN 1 AND 256),
    units bigint CHECK (units > 0),
    reason text NOT NULL CHECK (length(reason) BETWEEN 1 AND 4096),
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    version bigint NOT NULL,
    CHECK ((user_id IS NULL) <> (tenant_id IS NULL)),
    CHECK (units IS NULL OR policy IS NOT NULL)
);
CREATE INDEX count_resets_version ON count_resets (version);
CREATE INDEX count_resets_user ON count_resets (user_id);
CREATE INDEX count_resets_tenant ON count_resets (tenant_id);
