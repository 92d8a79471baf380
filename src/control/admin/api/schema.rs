//! What JSON Schema says of the types that endpoints read and answer, and the values that many of them have.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use base::units;

/// A text of 1 to so many characters, none of them a control character: PostgreSQL takes no NUL, and a log or a
/// terminal no control character.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, with = "String", description = "")]
#[schemars(extend("minLength" = 1, "maxLength" = CHARS_MAX, "pattern" = NO_CONTROL_CHARACTERS))]
pub(in crate::admin) struct BoundedText<const CHARS_MAX: usize>(pub String);

/// The name of a consumer, a tenant, a policy, a tier, a resource or a row.
pub(in crate::admin) type Name = BoundedText<ID_CHARS_MAX>;

/// Why something is done, for the audit: as long as the table's column.
pub(in crate::admin) type Reason = BoundedText<4_096>;

/// Values of a subject: a request may have longer ones, which nobody types.
pub(in crate::admin) type Values = BoundedText<4_096>;

/// A duration as gateway.toml has them, at least a second.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(
    inline,
    with = "String",
    description = "Whole numbers with units, the largest first: 10m, 1h30m, 2d."
)]
#[schemars(extend("format" = SPAN, "minLength" = 2, "pattern" = SPAN_PATTERN, "examples" = ["1h30m"]))]
pub(in crate::admin) struct DurationText(pub Duration);

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DurationText, D::Error> {
        units::duration(&String::deserialize(deserializer)?).map(DurationText).map_err(D::Error::custom)
    }
}

/// A generator of schemas with names for the document.
pub(super) fn generator() -> SchemaSettings {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    settings.with_transform(RecursiveTransform(plain))
}

/// Writes a schema as generators of clients know it: one that asks for nothing is no `true`, and words are no list of
/// schemas, one for each.
fn plain(schema: &mut Schema) {
    let keywords = schema.ensure_object();
    let variants = keywords.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let said = variants.filter_map(|variant| {
        let text = |name: &str| variant[name].as_str().map(str::to_owned);
        Some((text("const")?, text("description").unwrap_or_default()))
    });
    let said: Vec<(String, String)> = said.collect();
    if said.is_empty() {
        return;
    }
    keywords.remove("oneOf");
    let known = keywords.get("description").and_then(Value::as_str).map(str::to_owned);
    let about = said.iter().map(|(word, about)| format!("`{word}`: {about}"));
    let about: Vec<String> = known.into_iter().chain(about).collect();
    keywords.insert("description".to_owned(), about.join(" ").into());
    keywords.insert("type".to_owned(), "string".into());
    keywords.insert("enum".to_owned(), said.into_iter().map(|(word, _)| Value::String(word)).collect());
}

/// The schema of a type that is read, without references.
pub(super) fn of<T: JsonSchema + 'static>() -> Arc<Value> {
    static KNOWN: Mutex<BTreeMap<TypeId, Arc<Value>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let made = || {
        let settings = generator().for_deserialize().with(|settings| settings.inline_subschemas = true);
        Arc::new(settings.into_generator().into_root_schema_for::<T>().to_value())
    };
    Arc::clone(known.entry(TypeId::of::<T>()).or_insert_with(made))
}

/// The type of a schema that may be `null`, too.
pub(super) fn type_of(schema: &Value) -> &str {
    match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        name => name.as_str(),
    }
    .unwrap_or_default()
}

/// The words of a schema that takes a few.
pub(super) fn words(schema: &Value) -> Option<Vec<&str>> {
    let words: Vec<&str> = schema["enum"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!words.is_empty()).then_some(words)
}

/// Of a text that [`DurationText`] is read from.
pub(super) const SPAN: &str = "time-span";
/// Not all that is read: whatever matches is at least a second and at most 366 days.
const SPAN_PATTERN: &str = "^([1-9][0-9]?d)?([1-9][0-9]{0,2}h)?([1-9][0-9]{0,3}m)?([1-9][0-9]{0,4}s)?$";
/// What such texts match, because PostgreSQL takes no NUL, and logs and terminals no control characters.
pub(super) const NO_CONTROL_CHARACTERS: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
/// Characters of an id, a name or a reason at most, where the database has a bound, too.
pub(in crate::admin) const ID_CHARS_MAX: usize = 256;
