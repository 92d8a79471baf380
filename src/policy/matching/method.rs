//! Sets of methods. A set with GET contains HEAD too, as in nginx and Caddy, so that HEAD neither gets a 405 nor evades a
//! limit on GET. A route that lists HEAD itself is more specific. OPTIONS is a method like any other.

use http::Method;
use smallvec::SmallVec;

/// A set of methods. Empty: any. Stored inline, because every request looks at some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Methods(SmallVec<[Method; 2]>);

/// How a method is in a set; the more specific is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The set takes any.
    Any,
    /// It is HEAD, and GET is listed.
    ByGet,
    Listed,
}

impl Methods {
    /// The set of these; one named twice counts once.
    pub fn new(methods: &[Method]) -> Methods {
        let mut unique: SmallVec<[Method; 2]> = SmallVec::new();
        for method in methods {
            if !unique.contains(method) {
                unique.push(method.clone());
            }
        }
        Methods(unique)
    }

    /// Whether and how a method is in the set.
    pub fn fit(&self, method: &Method) -> Option<Fit> {
        if self.0.is_empty() {
            return Some(Fit::Any);
        }
        if self.0.contains(method) {
            return Some(Fit::Listed);
        }
        (method == Method::HEAD && self.0.contains(&Method::GET)).then_some(Fit::ByGet)
    }

    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some method is listed in both, or both take any: where two routes cannot be told apart by it.
    pub fn ties(&self, other: &Methods) -> bool {
        match (self.is_any(), other.is_any()) {
            (true, true) => true,
            (false, false) => self.0.iter().any(|method| other.0.contains(method)),
            _ => false,
        }
    }

    /// Whether every method in both of `left` and `right` (which tie) is in this set, as specifically.
    pub fn covers(&self, left: &Methods, right: &Methods) -> bool {
        self.is_any() == left.is_any()
            && left.0.iter().filter(|method| right.0.contains(method)).all(|method| self.0.contains(method))
    }

    /// The methods listed, with HEAD where GET is.
    pub fn listed(&self) -> impl Iterator<Item = &Method> {
        let head = self.0.contains(&Method::GET).then_some(&Method::HEAD);
        self.0.iter().chain(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_goes_where_get_goes() {
        let get = Methods::new(&[Method::GET, Method::GET]);
        assert_eq!(get.fit(&Method::GET), Some(Fit::Listed));
        assert_eq!(get.fit(&Method::HEAD), Some(Fit::ByGet));
        assert_eq!(get.fit(&Method::OPTIONS), None);
        assert_eq!(Methods::new(&[Method::POST]).fit(&Method::HEAD), None);
        assert_eq!(Methods::new(&[Method::HEAD]).fit(&Method::GET), None);
        assert_eq!(Methods::default().fit(&Method::HEAD), Some(Fit::Any));
        assert_eq!(get.listed().collect::<Vec<_>>(), [Method::GET, Method::HEAD]);
    }
}
