//! An endpoint and its operations: the path, the role that each needs, and its handler. What they are for is said by the table
//! of `routes.rs`, and by the files beside this one.

use std::sync::Arc;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;

use super::change::BODY_BYTES_MAX;
use crate::admin::access::AdminRole::{self, Read};
use crate::admin::gate::{OpenTo, Permit};
use crate::admin::state::AdminState;

pub(in crate::admin) struct AdminEndpoint {
    /// The path as `/` lists it.
    pub shown: &'static str,
    /// The paths as axum writes them, of which there may be several.
    pub paths: Vec<&'static str>,
    pub about: &'static str,
    pub operations: Vec<EndpointMethod>,
    /// Of a list whose rows are written one by one: what to send instead of a method that it does not have.
    pub instead: Option<&'static str>,
}

impl AdminEndpoint {
    /// One without operations yet.
    pub fn new(path: &'static str, about: &'static str) -> AdminEndpoint {
        AdminEndpoint { shown: path, paths: vec![path], about, operations: Vec::new(), instead: None }
    }
}

pub(in crate::admin) struct EndpointMethod {
    pub permit: Permit,
    pub handler: MethodRouter<Arc<AdminState>>,
}

pub(in crate::admin) fn read<T: 'static>(
    role: AdminRole,
    handler: impl Handler<T, Arc<AdminState>>,
) -> EndpointMethod {
    EndpointMethod {
        permit: Permit {
            method: Method::GET,
            role,
            open_to: OpenTo::Nobody,
            is_stream: false,
            body_bytes_max: 0,
        },
        handler: on(MethodFilter::GET, handler),
    }
}

pub(in crate::admin) fn open<T: 'static>(
    open_to: OpenTo,
    handler: impl Handler<T, Arc<AdminState>>,
) -> EndpointMethod {
    let mut operation = read(Read, handler);
    operation.permit.open_to = open_to;
    operation
}

pub(in crate::admin) fn stream<T: 'static>(
    role: AdminRole,
    handler: impl Handler<T, Arc<AdminState>>,
) -> EndpointMethod {
    let mut operation = read(role, handler);
    operation.permit.is_stream = true;
    operation
}

/// An operation that changes something. DELETE takes no body.
pub(in crate::admin) fn change<T: 'static>(
    method: Method,
    role: AdminRole,
    handler: impl Handler<T, Arc<AdminState>>,
) -> EndpointMethod {
    // Never without a filter, because the table has only methods that axum knows.
    let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::OPTIONS);
    let body_bytes_max = if method == Method::DELETE { 0 } else { BODY_BYTES_MAX };
    let permit = Permit { method, role, open_to: OpenTo::Nobody, is_stream: false, body_bytes_max };
    EndpointMethod { permit, handler: on(filter, handler) }
}
