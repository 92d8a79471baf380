//! Rows of API keys into the table that authentication looks at.

use std::sync::Arc;

use serde_json::{Map, Value};

use auth::IssuedKey;
use auth::keys::digest_bytes;
use base::identity::{Claim, Claims, Identity};
use control::database::ApiKeyRow;

/// A key as it is looked up; `None` if its digest is none, which no writer lets into the table.
pub(super) fn of_row(row: &ApiKeyRow) -> Option<IssuedKey> {
    let Some(digest) = digest_bytes(&row.digest) else {
        tracing::error!(
            consumer = row.consumer,
            "an API key of the database is ignored, because its digest is invalid: create another one"
        );
        return None;
    };
    let text = |text: &Option<String>| text.as_deref().map(Box::from);
    let identity = Identity {
        consumer: Some(row.consumer.as_str().into()),
        tenant: text(&row.tenant),
        tier: text(&row.tier),
        claims: claims(&row.claims),
    };
    let expires_us = row.expires_at.map(|time| time.0);
    Some(IssuedKey { digest, identity: Arc::new(identity), expires_us, is_disabled: row.disabled })
}

/// Claims as those of a file of keys are: a text, a number, or a list of texts.
fn claims(claims: &Map<String, Value>) -> Claims {
    let claim = |value: &Value| match value {
        Value::String(text) => Some(Claim::One(text.as_str().into())),
        Value::Number(_) | Value::Bool(_) => Some(Claim::One(value.to_string().into())),
        Value::Array(texts) => {
            Some(Claim::Many(texts.iter().filter_map(Value::as_str).map(Box::from).collect()))
        }
        Value::Null | Value::Object(_) => None,
    };
    claims.iter().filter_map(|(name, value)| Some((name.as_str().into(), claim(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use control::database::Time;

    #[test]
    fn a_row_is_an_identity() {
        let row = ApiKeyRow {
            digest: "0f".repeat(32),
            consumer: "ann".to_owned(),
            tenant: Some("acme".to_owned()),
            tier: None,
            claims: json!({ "level": 3, "admin": true, "roles": ["ops", "dev"], "plan": "a" })
                .as_object()
                .expect("it is one")
                .clone(),
            expires_at: Some(Time(7)),
            disabled: true,
            created_at: Time(0),
            created_by: "alice".to_owned(),
            version: 1,
        };
        let key = of_row(&row).expect("it has a digest");
        let identity = &key.identity;
        assert_eq!((key.digest, key.expires_us, key.is_disabled), ([15; 32], Some(7), true));
        assert_eq!((identity.consumer.as_deref(), identity.tenant.as_deref()), (Some("ann"), Some("acme")));
        for (name, text) in [("level", "3"), ("admin", "true"), ("plan", "a")] {
            assert_eq!(identity.claims.find(name), Some(&Claim::One(text.into())), "{name}");
        }
        let says = |role| identity.claims.find("roles").is_some_and(|roles| roles.says(role));
        assert_eq!((identity.tier.as_deref(), says("dev"), says("a")), (None, true, false));
        assert!(of_row(&ApiKeyRow { digest: "none".to_owned(), ..row }).is_none());
    }
}
