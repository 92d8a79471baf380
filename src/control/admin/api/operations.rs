//! The operations of the control plane: each once, for the table of endpoints and for the OpenAPI document, with the schemas and
//! examples of the types that it reads and answers.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::answer::{self, Deletion, DryRun};
use super::endpoint::{AdminEndpoint, EndpointMethod};
use super::schema::{self, Name};
use crate::admin::reply::AdminProblem;

/// The operations so far, and the schemas that they name.
pub(super) struct Document {
    endpoints: Vec<AdminEndpoint>,
    /// Whether schemas are asked for, which take a while to make.
    is_written: bool,
    /// The tag of the operations that come next, and what names in their paths are.
    tag: &'static str,
    names: &'static [(&'static str, &'static str)],
    paths: Map<String, Value>,
    read: SchemaGenerator,
    answered: SchemaGenerator,
}

pub(super) struct OperationDocument<'d> {
    document: &'d mut Document,
    path: &'static str,
    method: String,
    said: Value,
}

impl Document {
    pub(super) fn new(is_written: bool) -> Document {
        let generator =
            |contract: fn(SchemaSettings) -> SchemaSettings| contract(schema::generator()).into_generator();
        Document {
            endpoints: Vec::new(),
            is_written,
            tag: "",
            names: &[],
            paths: Map::new(),
            read: generator(SchemaSettings::for_deserialize),
            answered: generator(SchemaSettings::for_serialize),
        }
    }

    /// Begins with the operations of a tag. Names that occur in their paths are these.
    pub(super) fn begin(&mut self, tag: &'static str, names: &'static [(&'static str, &'static str)]) {
        (self.tag, self.names) = (tag, names);
    }

    /// Adds an endpoint. The operations that come next are its own.
    pub(super) fn endpoint(&mut self, path: &'static str, about: &'static str) {
        self.endpoints.push(AdminEndpoint::new(path, about));
    }

    /// The same of a list whose rows are written one by one, with what to send instead of other methods.
    pub(super) fn list(&mut self, path: &'static str, about: &'static str, instead: &'static str) {
        self.endpoints.push(AdminEndpoint { instead: Some(instead), ..AdminEndpoint::new(path, about) });
    }

    pub(super) fn operation(&mut self, operation: EndpointMethod, id: &str) -> OperationDocument<'_> {
        let method = operation.permit.method.as_str().to_lowercase();
        let endpoint = self.endpoints.last_mut().expect("an operation comes behind its endpoint");
        let path = endpoint.shown;
        endpoint.operations.push(operation);
        let said = json!({ "operationId": id, "tags": [self.tag], "parameters": [], "responses": {} });
        let names = self.names.iter().filter(|(name, _)| path.contains(&format!("{{{name}}}")));
        let operation = OperationDocument { document: self, path, method, said };
        let operation = names.fold(operation, |operation, (name, about)| operation.at::<Name>(name, about));
        let problem = operation.document.answered::<AdminProblem>();
        operation.response(
            "default",
            "The request is refused, and nothing has changed.",
            "application/problem+json",
            problem,
        )
    }

    pub(super) fn endpoints(self) -> Vec<AdminEndpoint> {
        self.endpoints
    }

    fn read<T: JsonSchema>(&mut self) -> Value {
        if self.is_written { self.read.subschema_for::<T>().to_value() } else { Value::Null }
    }

    fn answered<T: JsonSchema>(&mut self) -> Value {
        if self.is_written { self.answered.subschema_for::<T>().to_value() } else { Value::Null }
    }

    /// The document, with what holds for all operations.
    pub(super) fn whole(self) -> Value {
        let Document { paths, mut read, mut answered, .. } = self;
        let mut schemas = read.take_definitions(true);
        schemas.values_mut().for_each(closed);
        schemas.extend(answered.take_definitions(true));
        let mut document = json!({
            "openapi": "3.1.0",
            "info": { "title": "Sluicegate", "description": ABOUT, "version": env!("CARGO_PKG_VERSION") },
            "paths": paths,
            "components": {
                "schemas": schemas, "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            },
            "security": [{ "token": [] }],
        });
        let schemas = document["components"]["schemas"].clone();
        let operations = document["paths"].as_object_mut().into_iter().flatten();
        for operation in operations.flat_map(|(_, path)| path.as_object_mut().into_iter().flatten()) {
            let operation = operation.1;
            for parameter in operation["parameters"].as_array_mut().into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap_or_default();
                parameter["example"] = example(name, &parameter["schema"], &schemas);
            }
            media(operation, &mut |media| media["example"] = example("", &media["schema"], &schemas));
        }
        document
    }
}

impl OperationDocument<'_> {
    pub(super) fn about(mut self, about: &str) -> Self {
        self.said["summary"] = about.into();
        self
    }

    /// What a value of the path is.
    pub(super) fn at<T: JsonSchema>(mut self, name: &str, about: &str) -> Self {
        let schema = self.document.read::<T>();
        self.parameter(json!({
            "name": name, "in": "path", "required": true, "description": about, "schema": schema,
        }));
        self
    }

    pub(super) fn query<T: JsonSchema + 'static>(mut self) -> Self {
        let schema = if self.document.is_written { schema::of::<T>() } else { Default::default() };
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let mut schema = schema.clone();
            let about = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            self.parameter(json!({
                "name": name, "in": "query", "required": false, "description": about, "schema": schema,
            }));
        }
        self
    }

    /// Header fields that its method looks at, and `?dry-run=true`.
    fn changes(mut self) -> Self {
        let others: &[fn() -> Value] = match self.method.as_str() {
            "post" => &[answer::idempotency_key],
            "put" => &[answer::if_match, answer::if_none_match],
            _ => &[answer::if_match],
        };
        self.parameter(answer::dry_run_parameter());
        others.iter().for_each(|parameter| self.parameter(parameter()));
        self
    }

    pub(super) fn once(mut self) -> Self {
        self.parameter(answer::idempotency_key());
        self
    }

    pub(super) fn body<T: JsonSchema>(mut self) -> Self {
        let schema = self.document.read::<T>();
        self.said["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        self
    }

    pub(super) fn answers<T: JsonSchema>(self, about: &str) -> Self {
        let schema = self.document.answered::<T>();
        self.response("200", about, JSON, schema)
    }

    /// The row that it answers, with its version as its tag.
    pub(super) fn shows<T: JsonSchema>(self, about: &str) -> Self {
        self.answers::<T>(about).tagged("200")
    }

    /// That it makes a row of its body and answers it.
    pub(super) fn makes<B: JsonSchema, T: JsonSchema>(self) -> Self {
        let operation = self.changes().body::<B>();
        let schema = operation.document.answered::<T>();
        let operation = operation.response("201", "It is created and in force.", JSON, schema).tagged("201");
        operation.answers::<DryRun>("What would be done.")
    }

    /// That it writes what its body says.
    pub(super) fn writes<B: JsonSchema, T: JsonSchema>(self) -> Self {
        self.changes().body::<B>().answers_or_dry_run::<T>().tagged("200")
    }

    pub(super) fn deletes(self) -> Self {
        let mut operation = self.changes();
        operation.said["responses"]["204"] = json!({ "description": "It is deleted." });
        operation.answers::<DryRun>("What would be done.")
    }

    /// The same of a row that files are put in force with again.
    pub(super) fn unpublishes(self) -> Self {
        let mut operation = self.changes();
        operation.said["responses"]["204"] = json!({ "description": "It is deleted and in force." });
        operation.answers_or_dry_run::<Deletion>()
    }

    /// That it deletes a row, and says so.
    pub(super) fn deletes_saying<T: JsonSchema>(self) -> Self {
        self.changes().answers_or_dry_run::<T>()
    }

    fn answers_or_dry_run<T: JsonSchema>(self) -> Self {
        let schemas = [self.document.answered::<T>(), self.document.answered::<DryRun>()];
        self.response(
            "200",
            "It is in force, or, for a dry run, what would change.",
            JSON,
            json!({ "oneOf": schemas }),
        )
    }

    fn tagged(mut self, status: &str) -> Self {
        self.said["responses"][status]["headers"]["etag"] = json!({ "schema": { "type": "string" } });
        self
    }

    fn parameter(&mut self, parameter: Value) {
        if let Some(all) = self.said["parameters"].as_array_mut() {
            all.push(parameter);
        }
    }

    fn response(mut self, status: &str, about: &str, media_type: &str, schema: Value) -> Self {
        self.said["responses"][status] =
            json!({ "description": about, "content": { media_type: { "schema": schema } } });
        self
    }
}

impl Drop for OperationDocument<'_> {
    fn drop(&mut self) {
        let path = self.document.paths.entry(self.path).or_insert_with(|| json!({}));
        path[&self.method] = self.said.take();
    }
}

/// Visits what the body and the answers of an operation may be.
fn media(of: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    for (name, value) in of.as_object_mut().into_iter().flatten() {
        match name.as_str() {
            "content" => value.as_object_mut().into_iter().flatten().for_each(|(_, media)| visit(media)),
            _ => media(value, visit),
        }
    }
}

/// A field that no type has is refused.
fn closed(schema: &mut Value) {
    if schema.get("properties").is_some() {
        schema["additionalProperties"] = false.into();
    }
}

/// A value that a schema takes: the example that its type has, that of fields of this name, or one made of those of its parts.
fn example(name: &str, schema: &Value, schemas: &Value) -> Value {
    if let Some(first) = schema["examples"].get(0) {
        return first.clone();
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return example("", &schemas[name], schemas);
    }
    if let Some(word) = schema::words(schema).and_then(|words| words.first().copied()) {
        return word.into();
    }
    let first = ["oneOf", "anyOf"].into_iter().find_map(|keyword| schema[keyword].get(0));
    if let Some(first) = first.filter(|_| schema["properties"].is_null()) {
        return example(name, first, schemas);
    }
    match schema::type_of(schema) {
        "object" => {
            let required = schema["required"].as_array().into_iter().flatten();
            let required: Vec<&str> = required.filter_map(Value::as_str).collect();
            let properties = schema["properties"].as_object().into_iter().flatten();
            let usual =
                properties.filter(|(name, _)| !RARE.contains(&&***name) || required.contains(&&***name));
            usual.map(|(name, schema)| (name.clone(), example(name, schema, schemas))).collect()
        }
        "array" => vec![example(name, &schema["items"], schemas)].into(),
        "string" if schema["format"] == "date-time" => "2027-01-31T12:00:00.000000Z".into(),
        "string" => {
            let name = name.replace('_', "-");
            let known = EXAMPLES.iter().find(|(names, _)| names.split(' ').any(|known| known == name));
            known.map_or("alice", |(_, text)| text).into()
        }
        "boolean" => matches!(name, "allowed" | "admitted").into(),
        "integer" => schema["minimum"].as_u64().unwrap_or(0).max(1).into(),
        "number" => 1.5.into(),
        _ => Value::Null,
    }
}

const ABOUT: &str = "The control plane, on the admin listener of a gateway: every endpoint that changes limits, \
    counts or keys, and those that show them. Endpoints that show a gateway at work, as JSON to which fields \
    may be added, are not described: /v1/live (server-sent events), /v1/whoami, /v1/explain, /v1/upstreams and \
     /v1/keys/{policy}/{value}.";
const JSON: &str = "application/json";
/// Fields that few answers have, and that contradict others of an example.
const RARE: [&str; 12] = [
    "blocked",
    "error",
    "domain",
    "redis-down",
    "penalty",
    "shadow",
    "own-address",
    "hint",
    "note",
    "in-force",
    "in-force-error",
    "replaces",
];
/// Names of fields, and what texts in them may be; in all others a consumer.
const EXAMPLES: &[(&str, &str)] = &[
    ("policy policyId resource", "calls"),
    ("window", "calls-1m"),
    ("tier name", "pro"),
    ("tenant tenant-id", "acme"),
    ("reason", "CHG-17"),
    ("route", "orders"),
    ("node", "edge-1"),
    ("by", "consumer"),
    ("algorithm", "token-bucket"),
    ("limit", "100/m burst 20"),
    ("id override", "01JDQ7ZK3M8XW2V5T9R4B6C1EN"),
    ("request-id", "4bf92f3577b34da6a3ce929d0e0e4736"),
    ("digest", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    ("from-address", "192.0.2.1"),
    ("subject", "ip=203.0.113.0/24"),
    ("override-type", "absolute"),
    ("what", "override"),
    ("after next", "calls"),
    ("said", "policy calls, window calls-1m: 40 of 100 used, 60 left"),
    ("text", "limit     policy calls, window calls-1m: 40 of 100 used, 60 left\n"),
    ("shard", "consumer=alice"),
    ("in-force-error", "`[errors]`: 404.html cannot be read"),
];
