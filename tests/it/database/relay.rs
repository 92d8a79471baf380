//! Stands between a node and PostgreSQL and cuts the connection in the moment of a commit.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use control::database::config::{Config, Url};
use sqlx::postgres::PgConnectOptions;

use super::lab::config;
use crate::support::Directory;

/// A relay, on a socket of its own.
pub struct Relay {
    /// What a node needs to come this way.
    pub config: Config,
    mode: Arc<AtomicU8>,
    open: Arc<Mutex<Vec<UnixStream>>>,
    _directory: Directory,
}

impl Relay {
    /// Starts one in front of a database.
    pub fn start(url: &Url) -> Relay {
        let Url::Postgres(text) = url else { panic!("it is PostgreSQL") };
        let options: PgConnectOptions = text.parse().expect("it is a URL");
        let socket = options.get_socket().expect("tests speak over sockets");
        let server = socket.join(format!(".s.PGSQL.{}", options.get_port()));
        let directory = Directory::new();
        let listener = UnixListener::bind(directory.join(".s.PGSQL.5432")).expect("the path is short");
        let name = options.get_database().expect("it is named").to_owned();
        let here = directory.join("").display().to_string();
        let url = format!("postgres:///{name}?host={}&port=5432&user=postgres", here.trim_end_matches('/'));
        let config = config(Url::postgres(&url).expect("it is a URL"));
        let (mode, open) = (Arc::new(AtomicU8::new(THROUGH)), Arc::new(Mutex::new(Vec::new())));
        let (shared, streams) = (Arc::clone(&mode), Arc::clone(&open));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.load(Ordering::SeqCst) == STOPPED {
                    return;
                }
                streams.lock().expect("nobody panics").push(client.try_clone().expect("there is room"));
                let (server, mode) = (server.clone(), Arc::clone(&shared));
                thread::spawn(move || relay(client, server, mode));
            }
        });
        Relay { config, mode, open, _directory: directory }
    }

    /// From now on connections are cut at their first commit: after the server has made it and before its answer is passed
    /// on, or before the server gets it.
    pub fn cut_at_commit(&self, arrives: bool) {
        self.mode.store(if arrives { CUT_ANSWER } else { CUT_COMMIT }, Ordering::SeqCst);
    }

    /// From now on connections are cut that would listen for hints.
    pub fn refuse_listeners(&self) {
        self.mode.store(DEAF, Ordering::SeqCst);
    }

    /// Whether notifications are dropped from now on, as a pooler of transactions drops them, which takes `LISTEN`.
    pub fn drop_notifications(&self, drops: bool) {
        self.mode.store(if drops { POOLED } else { THROUGH }, Ordering::SeqCst);
    }

    /// Cuts all connections and takes no more.
    pub fn stop(&self) {
        self.mode.store(STOPPED, Ordering::SeqCst);
        for stream in self.open.lock().expect("nobody panics").drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

/// Copies both ways, a question and its answer after the other, as this protocol goes while nobody is notified.
fn relay(mut client: UnixStream, server: PathBuf, mode: Arc<AtomicU8>) {
    let Ok(mut server) = UnixStream::connect(server) else { return };
    let mut back = (server.try_clone().expect("there is room"), client.try_clone().expect("there is room"));
    let mode_of_answers = Arc::new(AtomicU8::new(THROUGH));
    let (passes, pools) = (Arc::clone(&mode_of_answers), Arc::clone(&mode));
    let answers = thread::spawn(move || {
        let mut bytes = [0; 64 * 1024];
        let mut read = Vec::new();
        while let Ok(length @ 1..) = back.0.read(&mut bytes) {
            read.extend_from_slice(&bytes[..length]);
            let drops = pools.load(Ordering::SeqCst) == POOLED;
            // The answer to the question for TLS is a letter without a length.
            let told: Vec<u8> = match read.as_slice() {
                b"N" => std::mem::take(&mut read),
                _ => messages(&mut read).filter(|message| !drops || message[0] != b'A').flatten().collect(),
            };
            // The answer to the commit is here, so it is made: nobody will hear of it.
            if passes.load(Ordering::SeqCst) == CUT_ANSWER || back.1.write_all(&told).is_err() {
                break;
            }
        }
        back.1.shutdown(Shutdown::Both).ok();
        back.0.shutdown(Shutdown::Both).ok();
    });
    // A statement is prepared under its text first; what comes next runs it.
    let mut is_prepared = false;
    let mut bytes = [0; 64 * 1024];
    while let Ok(length @ 1..) = client.read(&mut bytes) {
        let mode = mode.load(Ordering::SeqCst);
        let listens = bytes[..length].windows(7).any(|part| part == b"LISTEN ");
        if is_prepared && mode == CUT_COMMIT || listens && mode == DEAF {
            break;
        }
        if is_prepared && mode == CUT_ANSWER {
            mode_of_answers.store(CUT_ANSWER, Ordering::SeqCst);
        }
        is_prepared = bytes[..length].windows(7).any(|part| part == b"COMMIT\0");
        if server.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    client.shutdown(Shutdown::Both).ok();
    server.shutdown(Shutdown::Both).ok();
    answers.join().ok();
}

/// The whole messages of a server at the beginning of what was read: a letter, then a length that counts itself.
fn messages(read: &mut Vec<u8>) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(|| {
        let length = read.get(1..5)?.try_into().map(u32::from_be_bytes).expect("four bytes");
        let whole = 1 + usize::try_from(length).expect("it fits");
        (read.len() >= whole).then(|| read.drain(..whole).collect())
    })
}

const THROUGH: u8 = 0;
const CUT_ANSWER: u8 = 1;
const CUT_COMMIT: u8 = 2;
const STOPPED: u8 = 3;
const DEAF: u8 = 4;
const POOLED: u8 = 5;
