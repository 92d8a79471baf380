//! The worker threads, each with services of its own.
//!
//! This is done here and not in the crate that calls it, because what is polled on them is compiled where it is first
//! put on a runtime: the crates above are then built beside this one.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc::Receiver;

use crate::proxy::services::{self, Services};
use crate::server::run;
use crate::server::worker::{WorkerCommand, WorkerIndex, WorkerResources};
use observe::record;

/// Starts a worker for each of these cells of the metrics; each hears the commands of the receiver at the same place.
///
/// # Errors
/// If a thread cannot be started or its runtime gets no descriptors.
pub fn spawn(
    shared: &Arc<WorkerResources>,
    services: &Arc<services::SharedServices>,
    log: &record::LineLog,
    cells: Vec<metrics::WorkerToken>,
    commands: Vec<Receiver<WorkerCommand>>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let spawn = |(index, (cells, commands))| {
        let (services, log) = (Arc::clone(services), log.buffer());
        run::spawn(index, Arc::clone(shared), commands, move || Services::new(services, cells, log))
    };
    (0..).map(WorkerIndex::new).zip(cells.into_iter().zip(commands)).map(spawn).collect()
}
