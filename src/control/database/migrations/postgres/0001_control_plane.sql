-- Ids compare by their bytes (COLLATE "C"), so that pages are the same under every locale.

-- The number of the last change. Each write takes the next one first: the lock of this row puts writes in an order, and
-- nobody sees a version before the ones below it.
CREATE TABLE control_version (
    one integer PRIMARY KEY CHECK (one = 1),
    version bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO control_version (one, version) VALUES (1, 0);

-- What each version changed, for a day: a gateway reads the rows that are named after its own version.
CREATE TABLE changes (
    version bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (version, kind, id)
);
CREATE INDEX changes_at ON changes (at);

CREATE TABLE policies (
    id text COLLATE "C" PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 256),
    document jsonb NOT NULL,
    version bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    updated_by text NOT NULL
);
CREATE INDEX policies_version ON policies (version);

CREATE TABLE rate_limit_configs (
    tier text COLLATE "C" NOT NULL CHECK (length(tier) BETWEEN 1 AND 256),
    resource text COLLATE "C" NOT NULL CHECK (length(resource) BETWEEN 1 AND 256),
    limit_value bigint NOT NULL CHECK (limit_value > 0),
    window_seconds bigint NOT NULL CHECK (window_seconds > 0),
    burst_multiplier double precision NOT NULL DEFAULT 1.2 CHECK (burst_multiplier > 0),
    algorithm text,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (tier, resource)
);
CREATE INDEX rate_limit_configs_version ON rate_limit_configs (version);

CREATE TABLE user_rate_tiers (
    user_id text COLLATE "C" PRIMARY KEY CHECK (length(user_id) BETWEEN 1 AND 256),
    tier text NOT NULL DEFAULT 'free' CHECK (length(tier) BETWEEN 1 AND 256),
    assigned_at timestamptz NOT NULL,
    assigned_by text NOT NULL,
    version bigint NOT NULL
);
CREATE INDEX user_rate_tiers_version ON user_rate_tiers (version);

CREATE TABLE rate_limit_overrides (
    id text COLLATE "C" PRIMARY KEY,
    user_id text COLLATE "C" CHECK (length(user_id) BETWEEN 1 AND 256),
    tenant_id text COLLATE "C" CHECK (length(tenant_id) BETWEEN 1 AND 256),
    policy text COLLATE "C" CHECK (length(policy) BETWEEN 1 AND 256),
    override_type text NOT NULL CHECK (override_type IN ('absolute', 'multiplicative')),
    value double precision NOT NULL CHECK (value > 0),
    reason text NOT NULL CHECK (length(reason) BETWEEN 1 AND 4096),
    expires_at timestamptz,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    version bigint NOT NULL,
    CHECK (user_id IS NOT NULL OR tenant_id IS NOT NULL)
);
CREATE INDEX rate_limit_overrides_version ON rate_limit_overrides (version);
CREATE INDEX rate_limit_overrides_user ON rate_limit_overrides (user_id, expires_at);
CREATE INDEX rate_limit_overrides_tenant ON rate_limit_overrides (tenant_id, expires_at);
CREATE INDEX rate_limit_overrides_expires ON rate_limit_overrides (expires_at);

CREATE TABLE api_keys (
    digest text COLLATE "C" PRIMARY KEY CHECK (length(digest) = 64),
    consumer text COLLATE "C" NOT NULL CHECK (length(consumer) BETWEEN 1 AND 256),
    tenant text,
    tier text,
    claims jsonb NOT NULL,
    expires_at timestamptz,
    disabled boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    version bigint NOT NULL
);
CREATE INDEX api_keys_version ON api_keys (version);
CREATE INDEX api_keys_consumer ON api_keys (consumer);

CREATE TABLE audit_log (
    id text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL,
    who text COLLATE "C" NOT NULL,
    from_address text,
    action text NOT NULL,
    what text COLLATE "C" NOT NULL,
    old jsonb,
    new jsonb,
    request_id text NOT NULL
);
CREATE INDEX audit_log_who ON audit_log (who, id);
CREATE INDEX audit_log_what ON audit_log (what, id);
CREATE INDEX audit_log_at ON audit_log (at);

-- Nobody rewrites what was done, not even by hand without dropping these.
CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_log is append-only';
END
$$;
CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only();

-- What a request under an Idempotency-Key was answered with, for a day.
CREATE TABLE idempotency_keys (
    who text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL CHECK (length(key) BETWEEN 1 AND 256),
    request text NOT NULL,
    answer jsonb NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (who, key)
);
CREATE INDEX idempotency_keys_at ON idempotency_keys (at);

-- By month: a month that is over is dropped as one table. The upkeep makes the months ahead.
CREATE TABLE rate_limit_events (
    id bigserial,
    user_id text COLLATE "C",
    tenant_id text COLLATE "C",
    node_id text NOT NULL,
    decision text NOT NULL,
    count_at_decision bigint,
    limit_applied bigint,
    recorded_at timestamptz NOT NULL,
    policy text,
    tier text,
    PRIMARY KEY (id, recorded_at)
) PARTITION BY RANGE (recorded_at);
CREATE INDEX rate_limit_events_at ON rate_limit_events (recorded_at);
CREATE INDEX rate_limit_events_user ON rate_limit_events (user_id, recorded_at);
