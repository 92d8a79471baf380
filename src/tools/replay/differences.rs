//! What two configurations decide differently about the requests of one log.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::outcome_counts::Outcome;
use super::request::{Client, Request};
use super::tally::HeavyHitters;
use policy::KeyNaming;
use policy::keys::naming::{VALUE_BYTES_MAX, text};
use policy::request::counted_address;

#[derive(Debug, Default)]
pub struct Differences {
    /// Requests that both admit, or count nowhere.
    pub both_admit: u64,
    pub both_deny: u64,
    /// Requests that only the candidate refuses.
    pub newly_denied: u64,
    /// Requests that only the other configuration refuses.
    pub newly_admitted: u64,
    /// Who of those is met most.
    pub denied_callers: HeavyHitters<Caller>,
    /// The same of those that are admitted now.
    pub admitted_callers: HeavyHitters<Caller>,
    /// By the candidate's route: requests that only the candidate refuses, and that only the other one does.
    pub routes: BTreeMap<String, [u64; 2]>,
}

/// Who sends requests, whatever policies count by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    Consumer(Box<str>),
    /// An address; IPv6 by its network.
    Address(IpAddr),
    /// A line that has neither.
    Nobody,
}

impl Caller {
    pub fn of(request: &Request) -> Caller {
        match (&request.identity.consumer, Caller::address_of(request)) {
            (Some(consumer), _) => Caller::Consumer(consumer.clone()),
            (None, Some(ip)) => Caller::Address(counted_address(ip, IPV6_PREFIX)),
            (None, None) => Caller::Nobody,
        }
    }

    /// The address that a request came from.
    pub fn address_of(request: &Request) -> Option<IpAddr> {
        request.client.map(|(Client::Found { ip, .. } | Client::Peer(ip))| ip)
    }

    fn name(&self, naming: &KeyNaming) -> String {
        match self {
            Caller::Consumer(name) => format!("consumer={}", text(name.as_bytes(), VALUE_BYTES_MAX)),
            Caller::Address(address) => format!("ip={}", naming.address(*address)),
            Caller::Nobody => "ip=none".to_owned(),
        }
    }
}

impl Differences {
    /// Compares what became of a request, whose caller is named so.
    pub fn add(
        &mut self,
        request: &Request,
        naming: &KeyNaming,
        candidate: Outcome,
        other: Outcome,
        route: impl FnOnce() -> String,
    ) {
        let (newly, callers) = match (candidate.is_denied(), other.is_denied()) {
            (false, false) => return self.both_admit += 1,
            (true, true) => return self.both_deny += 1,
            (true, false) => {
                self.newly_denied += 1;
                (0, &mut self.denied_callers)
            }
            (false, true) => {
                self.newly_admitted += 1;
                (1, &mut self.admitted_callers)
            }
        };
        let caller = Caller::of(request);
        callers.meet(caller.clone(), || caller.name(naming));
        self.routes.entry(route()).or_default()[newly] += 1;
    }
}

/// An IPv6 client has a network of its own.
const IPV6_PREFIX: u8 = 64;
