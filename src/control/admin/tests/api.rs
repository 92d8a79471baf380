//! The endpoints of the control plane, over sockets and a database of SQLite.

mod changes;
mod conditions;
mod document;
mod invalid_bodies;
mod overrides;
mod rows;

use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::admin::{ControlPlane, Writes};
use crate::database::config::Url;
use crate::database::{self, Database};

/// What the node of these tests has counted by the minute.
fn minutes_of(asked: &crate::admin::MinutesQuery) -> crate::admin::UsageMinutes {
    let amount = metrics::usage::Amount { admitted: 2, denied: 1, units: asked.minutes };
    let minutes = crate::admin::ByMinute::from([(Time(0), amount)]);
    let policies = std::collections::BTreeMap::from([(asked.policies.0.clone(), minutes.clone())]);
    crate::admin::UsageMinutes { policies, others: minutes }
}

/// A listener with a database of its own.
struct Api {
    admin: Admin,
    directory: PathBuf,
    /// How often the follower was woken.
    woken: Arc<Mutex<usize>>,
    /// Up to which version this node has everything in force.
    applied: watch::Sender<i64>,
}

impl Api {
    /// One that has every change in force at once.
    async fn start() -> Api {
        let api = Api::slow().await;
        api.applied.send_replace(i64::MAX);
        api
    }

    /// One that has no change in force before `applied` says so.
    async fn slow() -> Api {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("sluicegate-api-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("made");
        let url = Url::Sqlite(directory.join("state.db"));
        let database = Database::open(&database::Config::new(url)).await.expect("opened");
        let (applied, follower) = watch::channel(0);
        let woken: Arc<Mutex<usize>> = Arc::default();
        let told = Arc::clone(&woken);
        let control = ControlPlane {
            database: Box::new(move || Some(database.clone())),
            writes: Writes::Allowed,
            changed: Box::new(move || *told.lock().expect("no panic") += 1),
            applied: Box::new(move |version| {
                let mut follower = follower.clone();
                Box::pin(async move { follower.wait_for(|applied| *applied >= version).await.is_ok() })
            }),
            check: Box::new(|_| Box::pin(std::future::ready(Ok(())))),
            sentence: Box::new(String::new),
            stuck: Box::new(|| None),
            minutes: Some(Box::new(|(_, asked)| Box::pin(std::future::ready(Ok(minutes_of(&asked)))))),
        };
        Api { admin: admin_with(Some(control)), directory, woken, applied }
    }

    /// One request with the token of the admin.
    async fn ask(&self, request: &str, body: Option<Value>) -> ApiAnswer {
        self.ask_as("admin", request, "", body).await
    }

    async fn ask_with(&self, request: &str, headers: &str, body: Option<Value>) -> ApiAnswer {
        self.ask_as("admin", request, headers, body).await
    }

    async fn ask_as(&self, token: &str, request: &str, headers: &str, body: Option<Value>) -> ApiAnswer {
        ask(&self.admin, token, request, headers, body).await
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        // It is below the system's directory for such files, so what is left over goes, too, some day.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A listener with three tokens that have the names of their roles.
fn admin_with(control: Option<ControlPlane>) -> Admin {
    let roles = [("read", AdminRole::Read), ("operate", AdminRole::Operate), ("admin", AdminRole::Admin)];
    let tokens = roles.map(|(name, role)| BearerToken::of_text(name, name, role, None)).to_vec();
    Admin::of_state(routes::endpoints(), AdminLimits::default(), |state| {
        state.access.tokens = tokens;
        state.control = control;
    })
}

async fn ask(admin: &Admin, token: &str, request: &str, headers: &str, body: Option<Value>) -> ApiAnswer {
    let body = body.map(|body| body.to_string());
    let length = body.as_ref().map_or(String::new(), |body| {
        format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len())
    });
    let mut client = admin.connect().await;
    client.request(request, &format!("authorization: Bearer {token}\r\n{headers}{length}")).await;
    if let Some(body) = body {
        client.send(&body).await;
    }
    ApiAnswer(client.answer().await)
}

struct ApiAnswer(RawAnswer);

impl ApiAnswer {
    fn status(&self) -> u16 {
        self.0.first_line()[9..12].parse().expect("a status")
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.0.0.lines().take_while(|line| !line.is_empty());
        lines
            .filter_map(|line| line.split_once(": "))
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.0.body()).unwrap_or_else(|error| panic!("{error} in {}", self.0.0))
    }

    fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap_or_default().to_owned()
    }
}

/// An override of a consumer.
fn of_acme() -> Value {
    json!({
        "user-id": "acme", "override-type": "absolute", "value": 600, "reason": "launch", "duration": "10m",
    })
}
