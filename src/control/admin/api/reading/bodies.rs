//! Bodies of changes without a request around them: what an endpoint takes a body for, and everything it finds wrong.

use serde_json::Value;

use crate::admin::api::reading::fields::BodyFields;
use crate::admin::api::spellings::snake_overrides;
use crate::admin::api::{api_keys, overrides};
use crate::admin::refusal::AdminRefusal;
use crate::database::{NewApiKey, NewOverride, Time};

pub use crate::admin::api::reading::fields::{At, Flaw};

#[derive(Clone, Debug, PartialEq)]
pub enum ParsedBody {
    /// A POST of `/v1/overrides`, or of `/api/v1/rate-limits/overrides`.
    Override(NewOverride),
    /// POST `/v1/api-keys`; its digest is empty.
    ApiKey(NewApiKey),
    /// PUT `/v1/policies/{id}`: an object; what it may hold is gateway.toml's to say.
    Policy(Value),
}

/// What a body is for: `/v1/overrides`, `/api/v1/rate-limits/overrides`, `/v1/api-keys` or `/v1/policies/{id}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEndpoint {
    Overrides,
    SnakeOverrides,
    ApiKeys,
    Policies,
}

/// Reads a body as it would be read now.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(endpoint: BodyEndpoint, body: &[u8], now: Time) -> Result<ParsedBody, Vec<Flaw>> {
    let fields = BodyFields::parse(body)?;
    let asked = match endpoint {
        BodyEndpoint::Overrides => overrides::new_override(fields, now).map(ParsedBody::Override),
        BodyEndpoint::SnakeOverrides => snake_overrides::new_override(fields, now).map(ParsedBody::Override),
        BodyEndpoint::ApiKeys => api_keys::new_key(fields, String::new(), now).map(ParsedBody::ApiKey),
        BodyEndpoint::Policies => Ok(ParsedBody::Policy(fields.whole())),
    };
    asked.map_err(|refusal| match refusal {
        AdminRefusal::Invalid(flaws) | AdminRefusal::Unusable(flaws) => flaws,
        // Never another, because reading refuses for nothing else.
        other => vec![Flaw::of_body(other.to_string())],
    })
}
