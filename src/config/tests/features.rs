//! Keys of features that this binary may have been built without.

use super::load;

#[test]
fn a_key_whose_feature_is_missing_names_it() {
    let acme = "[listener.main]\nbind = \"127.0.0.1:443\"\ncerts = { acme = \"https://ca.test/\", \
        names = [\"a.test\"], agree = true, challenge = \"tls-alpn-01\" }";
    for (text, key, feature, is_in) in [
        (acme, "`acme`", "acme", cfg!(feature = "acme")),
        ("[admin]\ngrpc = \"127.0.0.1:9901\"", "`grpc`", "rls", cfg!(feature = "rls")),
        ("[database]\nurl = \"sqlite:state.db\"", "[database]", "control", cfg!(feature = "control")),
        ("[rls.edge]\ndescriptors = []", "[rls]", "rls", cfg!(feature = "rls")),
        ("[trace]\notlp = \"http://127.0.0.1:4318\"", "[trace]", "otlp", cfg!(feature = "otlp")),
    ] {
        let loaded = load(&[&format!("route = []\n{text}")]).map(drop);
        let said = format!("{key} needs the feature `{feature}`, which this binary was built without");
        assert_eq!(loaded.as_ref().is_err_and(|errors| errors.contains(&said)), !is_in, "{loaded:?}");
    }
}
