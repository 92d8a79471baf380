//! Reads `[database]`, where policies, tiers and overrides that change while traffic runs are kept. It opens
//! nothing.

use std::path::PathBuf;

use auth::MethodKind;
use base::words;
use control::database::config::{
    COPY_UNWRITTEN, Config, PARAMETERS, Password, SSL_MODES, USAGE_ROWS_UNWRITTEN, Url, UrlError,
};

use crate::load::context::Context;
use crate::load::mask;
use crate::load::report::{DefinitionSpans, Subject};
use crate::load::sections;
use crate::load::text;
use crate::load::text::Text;
use crate::reader::Table;
use crate::settings;

/// Reads `[database]`. `None`: nothing changes but by the files.
pub(crate) fn read(documents: &[Table<'_>]) -> Option<Config> {
    let table = sections::table(documents, SECTION)?;
    let url = table.value("url").and_then(|value| value.text()).and_then(|text| url(&text));
    let password = table.value("password").and_then(|value| value.text());
    let password = password.and_then(|text| password_beside(&text, url.as_ref()));
    let copy = table.value("copy").and_then(|value| value.path());
    let copy = copy.unwrap_or_else(|| PathBuf::from(COPY_UNWRITTEN));
    let (mut single_node, mut usage_rows) = (false, USAGE_ROWS_UNWRITTEN);
    table.boolean("single-node", &mut single_node);
    table.number("usage-rows", &mut usage_rows);
    Some(Config { url: url?, password, single_node, copy, usage_rows })
}

/// `sqlite:PATH`, or a URL as libpq has it.
fn url(text: &Text<'_>) -> Option<Url> {
    let Some(path) = text.text.strip_prefix("sqlite:") else { return postgres(text) };
    if path.is_empty() || path.starts_with("//") || path.starts_with(":memory:") || path.contains('?') {
        let hint = "write the path behind `sqlite:`, such as `sqlite:state.db` or `sqlite:/var/lib/sluicegate/state.db`";
        text.wrong("`url` does not name the file of the database", hint);
        return None;
    }
    let path = text::path_from(text, path);
    text.spell(format!("sqlite:{}", path.to_string_lossy()));
    Some(Url::Sqlite(path))
}

fn postgres(text: &Text<'_>) -> Option<Url> {
    let error = match Url::postgres(&text.text) {
        Ok(url) => {
            let password = url.password();
            if password.is_some_and(mask::is_mask) {
                text.wrong(format!("the password of `url` {}", mask::MASKED), mask::WRITE_SECRET);
            } else if password.is_some() && !text.has_reference {
                text.warn("a password is written in plain text", mask::OUT_OF_FILE);
            }
            return Some(url);
        }
        Err(error) => error,
    };
    let hint = match &error {
        UrlError::Scheme => "write `sqlite:PATH`, or `postgres://user@host:5432/name`".to_owned(),
        UrlError::Unreadable => {
            "write it like `postgres://user@host:5432/name`, with `%40` for an `@` and the like".to_owned()
        }
        UrlError::Servers => {
            "write `postgres://a:5432,b:5432/name`, with one port for all or one for each of up to eight"
                .to_owned()
        }
        UrlError::SslMode => format!("write {}", words::listed(&SSL_MODES)),
        UrlError::Session => "write `target_session_attrs=any` or `=read-write`".to_owned(),
        UrlError::Password => "write `password = \"${file:/path}\"` beside it".to_owned(),
        UrlError::Parameter(name) => words::did_you_mean(name, &PARAMETERS)
            .unwrap_or_else(|| format!("it takes {}", words::listed(&PARAMETERS))),
    };
    text.wrong(format!("`url` {error}"), hint);
    None
}

/// A password as it stands, which is no part of the URL.
fn password_beside(text: &Text<'_>, url: Option<&Url>) -> Option<Password> {
    if text.text.is_empty() {
        text.wrong("`password` is empty", "leave it out, or write `\"${file:/path}\"`");
        return None;
    }
    match url {
        Some(Url::Sqlite(_)) => {
            text.wrong("`password` has no effect on SQLite", "remove it: the mode of the file protects it");
        }
        Some(url) if url.password().is_some() => {
            text.wrong("`url` has a password, too", "keep one of the two");
        }
        _ => text.warn_if_plain(),
    }
    Some(Password(text.text.clone()))
}

/// Reports keys that would come from a database that is not there, and warns of a database that would be another one on
/// every node.
pub(crate) fn check(ctx: &Context<'_>, config: &settings::Config, places: &DefinitionSpans) {
    let Some(database) = &config.database else {
        // By its place, because one with errors has been reported already.
        let is_absent = !places.sections.contains_key(SECTION);
        for (method, fields) in config.auth.iter().zip(&places.auth).filter(|_| is_absent) {
            let needs_one = matches!(&method.kind, MethodKind::ApiKey(keys) if keys.source.has_database());
            if let Some(place) = fields.place("keys").filter(|_| needs_one) {
                ctx.wrong(place, "`keys = \"database\"` needs [database]", "write `[database]` with a `url`");
            }
        }
        return;
    };
    let is_split = matches!(database.url, Url::Sqlite(_)) && config.redis.is_some() && !database.single_node;
    if let Some(place) = places.find(Subject::Section(SECTION), "url").filter(|_| is_split) {
        ctx.warn(
            place,
            "nodes that share [redis] would each have their own SQLite file, so the admin listener refuses changes",
            "use `postgres://`, or write `single-node = true` if there is no other node",
        );
    }
}

const SECTION: &str = "database";
