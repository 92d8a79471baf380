//! Writes a configuration as a gateway.toml with every default and masked secrets. Once the secrets are filled in again, it
//! gives an equal configuration. With the masks it is refused: a secret that everybody knows would let everybody in.

use http::HeaderName;

use ::policy::definition::{Action, HeaderChanges};
use limiter::global;

use super::printer::Page;
use super::settings::Config;
use super::{
    admin, auth, database, errors, listener, log, mask, node, policy, redis, rls, route, running, tiers,
    trace, upstream,
};

impl Config {
    /// The same configuration without the secrets whose places are known; what else came from outside the files is
    /// masked where it is written.
    pub(super) fn masked(&self) -> Config {
        let mut masked = Config { secrets: mask::Secrets::default(), ..self.clone() };
        for secret in masked.admin.iter_mut().flat_map(admin::secrets) {
            mask::MASK.clone_into(secret);
        }
        for secret in masked.redis.iter_mut().flat_map(global::Config::secrets) {
            mask::MASK.clone_into(secret);
        }
        if let Some(database) = &mut masked.database {
            database.url.hide_password(mask::MASK);
            if let Some(password) = &mut database.password {
                mask::MASK.clone_into(&mut password.0);
            }
        }
        for sticky in masked.upstreams.iter_mut().filter_map(|upstream| upstream.sticky.as_mut()) {
            mask::MASK.clone_into(&mut sticky.secret.0);
        }
        let ordered = masked.listeners.iter_mut().flat_map(|listener| &mut listener.acme);
        for secret in ordered.filter_map(|ordered| ordered.secret.as_mut()) {
            mask::MASK.clone_into(&mut secret.0);
        }
        masked.trace.iter_mut().for_each(trace::hide);
        for auth in &mut masked.auth {
            auth.hide_secrets(mask::MASK);
        }
        for listener in &mut masked.listeners {
            hide(&mut listener.response_headers.written);
        }
        for route in &mut masked.routes {
            for header in &mut route.headers {
                if let Some(value) =
                    header.value.as_mut().filter(|_| mask::is_secret_name(header.name.as_str()))
                {
                    mask::MASK.clone_into(value);
                }
            }
            hide(&mut route.request_headers);
            hide(&mut route.response_headers);
            if let Action::Respond(respond) = &mut route.action {
                hide_fields(respond.headers.iter_mut());
            }
        }
        masked
    }

    /// A number that tells configurations apart, in hex; secrets do not count.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.effective())
    }

    /// The whole configuration as a gateway.toml, with every default and every secret masked.
    pub fn effective(&self) -> String {
        let config = self.masked();
        let mut page = Page(String::new());
        running::show_workers(&mut page, config.workers);
        config.listeners.iter().for_each(|listener| listener::show(&mut page, listener));
        listener::show_client_ip(&mut page, &config.client_ip);
        config.auth.iter().for_each(|method| auth::show(&mut page, method));
        config.upstreams.iter().for_each(|upstream| upstream::show(&mut page, upstream));
        running::show_dns(&mut page, &config.dns);
        running::show_limits(&mut page, &config.limits);
        config.tiers.iter().for_each(|tier| tiers::show_tier(&mut page, tier));
        config.policies.iter().for_each(|policy| policy::show(&mut page, policy));
        config.routes.iter().for_each(|route| route::show(&mut page, route));
        config.domains.iter().for_each(|domain| rls::show(&mut page, domain));
        admin::show(&mut page, config.admin.as_ref(), config.grpc.as_ref());
        config.redis.iter().for_each(|redis| redis::show(&mut page, redis));
        config.database.iter().for_each(|database| database::show(&mut page, database));
        errors::show(&mut page, &config.error_pages);
        running::show_overload(&mut page, &config.overload);
        running::show_shutdown(&mut page, &config.shutdown);
        node::show(&mut page, &config.node);
        node::show_privacy(&mut page, config.privacy);
        log::show(&mut page, &config.log_level, &config.access_log, &config.decisions);
        config.trace.iter().for_each(|config| trace::show(&mut page, config));
        self.secrets.hide_in_toml(&page.0)
    }
}

fn hide(changes: &mut HeaderChanges) {
    hide_fields(changes.set.iter_mut().chain(&mut changes.add));
}

fn hide_fields<'f>(fields: impl Iterator<Item = &'f mut (HeaderName, String)>) {
    for (_, value) in fields.filter(|(name, _)| mask::is_secret_name(name.as_str())) {
        mask::MASK.clone_into(value);
    }
}

/// The [`Config::fingerprint`] of the configuration whose [`Config::effective`] this is.
pub fn fingerprint(effective: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, effective.as_bytes());
    digest.as_ref()[..FINGERPRINT_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

const FINGERPRINT_BYTES: usize = 16;
