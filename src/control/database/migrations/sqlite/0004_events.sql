-- Decisions on limits that were drawn as samples: whose request it was, and the whole sample.
ALTER TABLE rate_limit_events ADD COLUMN request_id TEXT;
ALTER TABLE rate_limit_events ADD COLUMN sample TEXT;
CREATE INDEX rate_limit_events_request ON rate_limit_events (request_id);
