//! A connection whose protocol was switched (WebSocket): bytes both ways until one side ends, nothing read of them.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::time::sleep;

use super::connection::Conn;
use super::exchange::Exchange;
use super::io::{Gauge, Gauged, Stream};
use crate::clock;
use crate::upstream::http1::Upgraded;

/// The upstream's side of a switched protocol, waiting for the client's.
#[derive(Debug)]
pub struct Tunnel {
    upstream: Upgraded,
    exchange: Box<Exchange>,
}

impl Tunnel {
    /// Joins `upstream` to the connection the exchange came on, once its answer is out.
    pub fn new(upstream: Upgraded, exchange: Box<Exchange>) -> Tunnel {
        Tunnel { upstream, exchange }
    }

    /// Carries bytes until both sides have ended, one breaks, nothing moves for an hour, or the drain's deadline
    /// takes the worker. `read` is what the client sent beyond its request.
    pub async fn run(mut self, conn: &Rc<Conn>, client: Stream, read: Bytes) {
        let gauge = Rc::new(Gauge::new(clock::instant()));
        let mut client = Gauged::new(client, read, Rc::clone(&gauge));
        let mut upstream = self.upstream.stream;
        let early = self.upstream.read;
        let carry = async {
            client.write_all(&early).await?;
            copy_bidirectional(&mut client, &mut upstream).await
        };
        tokio::select! {
            carried = carry => match carried {
                Ok((up, down)) => {
                    self.exchange.bytes_in += up;
                    self.exchange.bytes_out += down + early.len() as u64;
                }
                Err(error) => tracing::debug!(peer = %conn.peer.ip, %error, "tunnel"),
            },
            () = quiet(&gauge) => tracing::debug!(peer = %conn.peer.ip, "tunnel idle"),
        }
        self.exchange.complete();
    }
}

/// Ready when no byte has moved for [`IDLE`].
async fn quiet(gauge: &Gauge) {
    let mut moved = gauge.moved();
    loop {
        sleep(IDLE).await;
        if std::mem::replace(&mut moved, gauge.moved()) == gauge.moved() {
            return;
        }
    }
}

/// How long a tunnel may stand still.
const IDLE: Duration = Duration::from_secs(3_600);
