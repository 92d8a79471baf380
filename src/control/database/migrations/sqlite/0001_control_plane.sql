-- Times are microseconds since the Unix epoch, UTC. JSON is text. Ids compare by their bytes.

-- The number of the last change. Each write takes the next one first, which puts writes in an order.
CREATE TABLE control_version (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
) STRICT;
INSERT INTO control_version (one, version) VALUES (1, 0);

-- What each version changed, for a day: a gateway reads the rows that are named after its own version.
CREATE TABLE changes (
    version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (version, kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX changes_at ON changes (at);

CREATE TABLE policies (
    id TEXT PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 256),
    document TEXT NOT NULL CHECK (json_valid(document)),
    version INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL
) STRICT;
CREATE INDEX policies_version ON policies (version);

CREATE TABLE rate_limit_configs (
    tier TEXT NOT NULL CHECK (length(tier) BETWEEN 1 AND 256),
    resource TEXT NOT NULL CHECK (length(resource) BETWEEN 1 AND 256),
    limit_value INTEGER NOT NULL CHECK (limit_value > 0),
    window_seconds INTEGER NOT NULL CHECK (window_seconds > 0),
    burst_multiplier REAL NOT NULL DEFAULT 1.2 CHECK (burst_multiplier > 0),
    algorithm TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (tier, resource)
) STRICT;
CREATE INDEX rate_limit_configs_version ON rate_limit_configs (version);

CREATE TABLE user_rate_tiers (
    user_id TEXT PRIMARY KEY CHECK (length(user_id) BETWEEN 1 AND 256),
    tier TEXT NOT NULL DEFAULT 'free' CHECK (length(tier) BETWEEN 1 AND 256),
    assigned_at INTEGER NOT NULL,
    assigned_by TEXT NOT NULL,
    version INTEGER NOT NULL
) STRICT;
CREATE INDEX user_rate_tiers_version ON user_rate_tiers (version);

CREATE TABLE rate_limit_overrides (
    id TEXT PRIMARY KEY,
    user_id TEXT CHECK (length(user_id) BETWEEN 1 AND 256),
    tenant_id TEXT CHECK (length(tenant_id) BETWEEN 1 AND 256),
    policy TEXT CHECK (length(policy) BETWEEN 1 AND 256),
    override_type TEXT NOT NULL CHECK (override_type IN ('absolute', 'multiplicative')),
    value REAL NOT NULL CHECK (value > 0),
    reason TEXT NOT NULL CHECK (length(reason) BETWEEN 1 AND 4096),
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    version INTEGER NOT NULL,
    CHECK (user_id IS NOT NULL OR tenant_id IS NOT NULL)
) STRICT;
CREATE INDEX rate_limit_overrides_version ON rate_limit_overrides (version);
CREATE INDEX rate_limit_overrides_user ON rate_limit_overrides (user_id, expires_at);
CREATE INDEX rate_limit_overrides_tenant ON rate_limit_overrides (tenant_id, expires_at);
CREATE INDEX rate_limit_overrides_expires ON rate_limit_overrides (expires_at);

CREATE TABLE api_keys (
    digest TEXT PRIMARY KEY CHECK (length(digest) = 64),
    consumer TEXT NOT NULL CHECK (length(consumer) BETWEEN 1 AND 256),
    tenant TEXT,
    tier TEXT,
    claims TEXT NOT NULL CHECK (json_valid(claims)),
    expires_at INTEGER,
    disabled INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1)),
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    version INTEGER NOT NULL
) STRICT;
CREATE INDEX api_keys_version ON api_keys (version);
CREATE INDEX api_keys_consumer ON api_keys (consumer);

CREATE TABLE audit_log (
    id TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    from_address TEXT,
    action TEXT NOT NULL,
    what TEXT NOT NULL,
    old TEXT,
    new TEXT,
    request_id TEXT NOT NULL
) STRICT;
CREATE INDEX audit_log_who ON audit_log (who, id);
CREATE INDEX audit_log_what ON audit_log (what, id);
CREATE INDEX audit_log_at ON audit_log (at);

-- Nobody rewrites what was done, not even by hand without dropping these.
CREATE TRIGGER audit_log_is_not_changed BEFORE UPDATE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'audit_log is append-only');
END;
-- REPLACE fires no trigger for the row that it deletes.
CREATE TRIGGER audit_log_is_not_replaced BEFORE INSERT ON audit_log
WHEN EXISTS (SELECT 1 FROM audit_log WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'audit_log is append-only');
END;
CREATE TRIGGER audit_log_is_not_deleted BEFORE DELETE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'audit_log is append-only');
END;

-- What a request under an Idempotency-Key was answered with, for a day.
CREATE TABLE idempotency_keys (
    who TEXT NOT NULL,
    key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 256),
    request TEXT NOT NULL,
    answer TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (who, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_at ON idempotency_keys (at);

CREATE TABLE rate_limit_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id TEXT,
    tenant_id TEXT,
    node_id TEXT NOT NULL,
    decision TEXT NOT NULL,
    count_at_decision INTEGER,
    limit_applied INTEGER,
    recorded_at INTEGER NOT NULL,
    policy TEXT,
    tier TEXT
) STRICT;
CREATE INDEX rate_limit_events_at ON rate_limit_events (recorded_at);
CREATE INDEX rate_limit_events_user ON rate_limit_events (user_id, recorded_at);
