//! The values of a path's parameters, decoded: `{id}` and the like.

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;

use crate::admin::api::reading::fields::{At, Flaw, text_flaw};
use crate::admin::api::schema::ID_CHARS_MAX;
use crate::admin::refusal::AdminRefusal;

/// The values, in the order of the path. They are texts that may be stored and shown.
#[derive(Debug)]
pub(in crate::admin) struct PathValues<const N: usize>(pub [String; N]);

impl<S: Send + Sync, const N: usize> FromRequestParts<S> for PathValues<N> {
    type Rejection = AdminRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathValues<N>, AdminRefusal> {
        // Its words are not needed, because the only way in which a path that was found can be wrong is its encoding.
        let found =
            RawPathParams::from_request_parts(parts, state).await.map_err(|_| AdminRefusal::Encoding)?;
        let flaws: Vec<Flaw> = found
            .iter()
            .filter_map(|(name, value)| {
                let detail = format!("`{name}` {}", text_flaw(value, ID_CHARS_MAX)?);
                Some(Flaw { at: At::Parameter(name.to_owned()), detail })
            })
            .collect();
        if !flaws.is_empty() {
            return Err(AdminRefusal::Invalid(flaws));
        }
        let values: Vec<String> = found.iter().map(|(_, value)| value.to_owned()).collect();
        values.try_into().map(PathValues).map_err(|_| AdminRefusal::NoSuchPage)
    }
}
