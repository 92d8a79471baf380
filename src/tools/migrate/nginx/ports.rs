//! Ports 80 and 443, which are one site here: what two servers of one name answer by different ports.
//!
//! All routes are served by both. The server of 443 stays, and what the other one keeps clients out of is closed in it.

use super::Reading;
use super::access::is_guarded;
use super::lexer::Directive;
use super::listeners::Redirecting;
use super::prefix::Match;
use super::server::{GuardedPath, Server};
use super::servers::rules_of;

impl<'d> Reading<'d> {
    /// Brings servers that one of the two ports alone reaches to one server for each name.
    pub(super) fn join_ports(&mut self, servers: &mut Vec<Server<'d>>, redirecting: &Redirecting) {
        let ports: Vec<(bool, bool)> = servers.iter().map(|server| web_ports(server, redirecting)).collect();
        let (has_clear, has_tls) = (ports.iter().any(|it| it.0), ports.iter().any(|it| it.1));
        if !has_clear || !has_tls {
            return;
        }
        let defaults = (default_of(servers, &ports, true), default_of(servers, &ports, false));
        // That of 443 alone, because what nobody names goes to its default server at both ports.
        for (index, server) in
            servers.iter_mut().enumerate().filter(|(index, _)| ports[*index] != (false, false))
        {
            server.listens.iter_mut().for_each(|listen| listen.is_default = defaults.1 == Some(index));
        }
        let mut twins = Vec::new();
        for index in 0..servers.len() {
            let (there, is_default) = match ports[index] {
                (true, false) => (false, defaults.0 == Some(index)),
                (false, true) => (true, defaults.1 == Some(index)),
                _ => continue,
            };
            self.close_uncertified(&mut servers[index]);
            let other_default = if there { defaults.0 } else { defaults.1 };
            let on_other = |other: usize| if there { ports[other].0 } else { ports[other].1 };
            let named = servers.iter().enumerate().filter(|(other, known)| {
                on_other(*other) && known.hosts.iter().any(|host| servers[index].hosts.contains(host))
            });
            let mut others: Vec<usize> = named.map(|(other, _)| other).collect();
            let is_named = |host: &String| others.iter().any(|other| servers[*other].hosts.contains(host));
            if is_default || !servers[index].hosts.iter().all(is_named) {
                others.extend(other_default.filter(|other| !others.contains(other)));
            }
            for other in others {
                // Two that take what nobody names are two for those requests only, where they have names.
                let shares = is_default && Some(other) == other_default && servers[index].hosts.is_empty()
                    || servers[other].hosts.iter().any(|host| servers[index].hosts.contains(host));
                if rules_of(servers[index].block) == rules_of(servers[other].block) {
                    // Kept once, because it is one server at two ports.
                    if !there && shares && servers[other].hosts == servers[index].hosts {
                        twins.push(index);
                    }
                    continue;
                }
                self.join(servers, index, other, shares);
            }
        }
        let mut index = 0;
        servers.retain(|server| {
            let is_twin = twins.contains(&index);
            index += 1;
            if is_twin {
                server.block.taken_whole();
            }
            !is_twin
        });
    }

    /// What the other port's server would refuse of the requests of this one is closed in it. Of two servers for the same
    /// requests one gives way.
    fn join(&mut self, servers: &mut [Server<'d>], index: usize, other: usize, shares: bool) {
        let (server, rival) = (&servers[index], &servers[other]);
        let mut kept = guarded_locations(rival.block);
        let here = server.block.whole();
        kept.retain(|(_, begin)| !says_the_same(&here, location_at(rival.block, begin)));
        let lifts = |outer: &Directive| {
            let mut own = server.block.block().iter();
            own.any(|inside| inside.name == outer.name || outer.name == "deny" && inside.name == "allow")
        };
        let has_other = own_guards(rival.block) != own_guards(server.block) && has_guard(rival.block);
        if has_other
            || self.http.iter().any(|outer| outer.name != "server" && is_guard(outer) && lifts(outer))
        {
            kept.push((rival.block.place.clone(), "/".to_owned()));
        }
        let place = server.block.place.clone();
        let gives_way = shares
            && match (only_redirects(server.block), only_redirects(rival.block)) {
                (true, false) => true,
                (false, true) => false,
                _ => server.scheme == Some("http"),
            };
        let line = rival.block.place.line;
        if !gives_way && !only_redirects(rival.block) {
            let why = format!(
                "in nginx the server in line {line} takes some of these requests at the other port; here this server \
                 takes them, and paths that the other server refuses are closed (501)"
            );
            self.draft.notes.differs(&place, "server", why);
            servers[index].kept.extend(kept);
        } else if gives_way && only_redirects(servers[index].block) {
            let why =
                format!("the server in line {line} answers these requests at both ports and redirects none");
            self.draft.notes.differs(&place, "server", why);
            let taken = servers[other].hosts.clone();
            servers[index].hosts.retain(|host| !taken.contains(host));
            servers[index].is_apart = servers[index].hosts.is_empty();
        } else if gives_way {
            servers[index].is_apart = true;
        }
    }

    /// A server that asks for certificates would be reached in the clear, where nobody has one.
    fn close_uncertified(&mut self, server: &mut Server<'d>) {
        let verify = server.block.block().iter().find(|inside| inside.name == "ssl_verify_client");
        let verify = verify.or_else(|| self.http.iter().find(|inside| inside.name == "ssl_verify_client"));
        if let Some(verify) = verify.filter(|verify| server.scheme == Some("https") && verify.arg(0) == "on")
        {
            let why = "the port without TLS serves its routes, too, and does not ask for a certificate; they are \
                closed (501)";
            self.draft.notes.left_out_line(verify, why);
            server.kept.push((verify.place.clone(), "/".to_owned()));
        }
    }
}

/// Whether a server answers at port 80, and at port 443, of every address.
fn web_ports(server: &Server<'_>, redirecting: &Redirecting) -> (bool, bool) {
    let served = |port: &str| {
        let any = [format!("0.0.0.0:{port}"), format!("[::]:{port}")];
        server.listens.iter().any(|it| any.contains(&it.address) && !redirecting.contains_key(&it.address))
    };
    (served("80"), served("443"))
}

/// The server that takes what no other names at a port: the one that says so, or the first.
fn default_of(servers: &[Server<'_>], ports: &[(bool, bool)], clear: bool) -> Option<usize> {
    let end = if clear { ":80" } else { ":443" };
    let there = |index: &usize| if clear { ports[*index].0 } else { ports[*index].1 };
    let says = |index: &usize| {
        servers[*index].listens.iter().any(|listen| listen.is_default && listen.address.ends_with(end))
    };
    let mut all = (0..servers.len()).filter(there);
    all.clone().find(says).or_else(|| all.next())
}

/// Whether every request is sent elsewhere, or to a place that forwards nothing.
pub(super) fn only_redirects(block: &Directive) -> bool {
    let moves = |inside: &Directive| inside.name == "return" && inside.arg(0).starts_with('3');
    let whole = block.block().iter().find(|inside| inside.name == "location" && inside.args == ["/"]);
    block.block().iter().any(moves) || whole.is_some_and(|whole| whole.block().iter().any(moves))
}

/// The places of a server that keep clients out, or bound what they do.
fn guarded_locations(block: &Directive) -> Vec<GuardedPath> {
    let mut kept = Vec::new();
    for location in block.block().iter().filter(|inside| inside.name == "location") {
        let begin = match Match::of(location) {
            Match::Other(_) => "/".to_owned(),
            known => known.text().to_owned(),
        };
        // From the location on, because what is within it may be an expression, which is anywhere below.
        kept.extend(guarded_locations(location).into_iter().map(|(place, inner)| {
            let is_anywhere = inner == "/";
            (place, if is_anywhere { begin.clone() } else { inner })
        }));
        if has_guard(location) {
            kept.push((location.place.clone(), begin));
        }
    }
    kept
}

/// The same, with all of it if the server itself has a guard.
pub(super) fn guarded(block: &Directive) -> Vec<GuardedPath> {
    let whole = has_guard(block).then(|| (block.place.clone(), "/".to_owned()));
    guarded_locations(block).into_iter().chain(whole).collect()
}

/// Whether a block has a guard of its own.
fn has_guard(block: &Directive) -> bool {
    block.block().iter().any(|inside| inside.name != "location" && is_guard(inside))
}

/// Whether a directive refuses requests.
fn is_guard(inside: &Directive) -> bool {
    is_guarded(std::slice::from_ref(inside)) || matches!(inside.name.as_str(), "limit_req" | "limit_conn")
}

/// What keeps clients out of a whole server, as it stands.
fn own_guards(block: &Directive) -> String {
    let guards = block.block().iter().filter(|inside| inside.name != "location");
    guards.filter(|inside| is_guard(inside) || inside.name == "allow").map(Directive::whole).collect()
}

/// The location of a server with this text.
fn location_at<'d>(server: &'d Directive, begin: &str) -> Option<&'d Directive> {
    let is_it = |inside: &&Directive| inside.name == "location" && Match::of(inside).text() == begin;
    server.block().iter().find(is_it)
}

/// Whether a server has a location as it stands.
fn says_the_same(server: &str, location: Option<&Directive>) -> bool {
    location.is_some_and(|location| server.contains(&location.whole()))
}
