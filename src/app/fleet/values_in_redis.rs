//! The values that nodes of a fleet share while certificates are ordered: `acme` asks, `global` answers.

use std::time::Duration;

use acme::{FleetValues, ValueAnswer, ValuesUnavailable};
use limiter::global::{self, SharedValueError};

pub(crate) struct ValuesInRedis(pub(crate) global::SharedValues);

impl FleetValues for ValuesInRedis {
    fn take<'a>(&'a self, name: &'a str, holder: &'a str, lasts: Duration) -> ValueAnswer<'a, bool> {
        Box::pin(async move { self.0.take(name, holder, lasts).await.map_err(away) })
    }

    fn give_back<'a>(&'a self, name: &'a str, holder: &'a str) -> ValueAnswer<'a, ()> {
        Box::pin(async move { self.0.give_back(name, holder).await.map_err(away) })
    }

    fn put<'a>(&'a self, name: &'a str, value: &'a [u8], lasts: Duration) -> ValueAnswer<'a, ()> {
        Box::pin(async move { self.0.put(name, value, lasts).await.map_err(away) })
    }

    fn get<'a>(&'a self, name: &'a str) -> ValueAnswer<'a, Option<Vec<u8>>> {
        Box::pin(async move { self.0.get(name).await.map_err(away) })
    }

    fn remove<'a>(&'a self, name: &'a str) -> ValueAnswer<'a, ()> {
        Box::pin(async move { self.0.remove(name).await.map_err(away) })
    }
}

fn away(error: SharedValueError) -> ValuesUnavailable {
    ValuesUnavailable(error.to_string())
}
