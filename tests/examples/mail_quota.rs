//! A mail service that is no gateway: all its processes together send a hundred mails an hour for each customer, counted
//! in Redis. `mail_quota PORT CUSTOMER MAILS` prints how many of so many mails may be sent.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use limit::{Algorithm, Charge, Key, Plan, Quota, Sharing, WhenDown};
use limiter::global::config::{Config, Login, Server, Topology};
use limiter::local::Table;
use limiter::{ClientAddress, Decision, Fleet, Limiter, Link, global::Global};

const HOUR: NonZeroU64 = NonZeroU64::new(3_600_000_000_000).unwrap();
const HUNDRED: NonZeroU64 = NonZeroU64::new(100).unwrap();

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [port, customer, mails] = arguments[..] else { return Err("mail_quota PORT CUSTOMER MAILS".into()) };
    println!("{}", sendable(u16::try_from(port)?, customer, mails).await?);
    Ok(())
}

/// How many of so many mails the customer may send now.
pub async fn sendable(port: u16, customer: u64, mails: u64) -> Result<u64, Box<dyn std::error::Error>> {
    let login = Login::default();
    let server = Server { host: "127.0.0.1".to_owned(), port, tls: false, login };
    let topology = Topology::Single(vec![server]);
    let prefix = "mail".to_owned();
    let config = Config { topology, deadline: None, prefix, key_secret: None, connections: 1, ca: None };
    let redis = Global::start(&config)?;
    redis.ready(Duration::from_secs(5)).await;
    let fleet = Fleet::new(Arc::clone(&redis) as Arc<dyn Link>, 1 << 20);

    // Exact, because a customer pays for each mail, and nothing is sent uncounted while Redis is down.
    let quota = Quota::new(Algorithm::FixedWindow, HUNDRED, HOUR, HUNDRED);
    let sharing = Sharing::new(&quota, 0.0, WhenDown::Deny);
    let plan = fleet.plans().id(Plan { policy: "mails".into(), quota, sharing });
    let limiter = Arc::new(Limiter::in_fleet(Table::with_memory(1 << 20), fleet));

    // Where names come from outside, a key is a hash of the name with a secret.
    let key = Key::new(u128::from(customer) << 64 | 1 << 16);
    let charge = Charge { plan: Some(plan), ..Charge::one(key, quota) };
    let (mut decision, mut sent) = (Decision::default(), 0);
    for _ in 0..mails {
        let begun_ns = clock::now_ns();
        let asked = limiter.decide(&[charge], ClientAddress::default(), begun_ns, &mut decision);
        if let Some(waiting) = asked {
            let _ = tokio::time::timeout(waiting.deadline(), waiting.resolved()).await;
            waiting.resume(clock::now_ns(), &mut decision);
        }
        sent += u64::from(decision.is_admitted());
    }
    redis.shutdown().await;
    Ok(sent)
}
