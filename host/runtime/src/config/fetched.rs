//! Grants of addresses that the host fetches from for itself, and for no module.

use crate::config::surroundings::ConfigFault;
use toolhold_policy::HttpGrant;

/// Checks the grants `http` for the fetch of `thing`, such as "a saved Request".
///
/// # Errors
/// A grant says what no such fetch does: a reader would believe that it holds.
pub fn check_fetched(grants: &[HttpGrant], thing: &str) -> Result<(), ConfigFault> {
    let wrong = |reason: String| Err(ConfigFault::new("http", reason));
    for (index, grant) in grants.iter().enumerate() {
        let entry = format!("entry {} ({})", index + 1, grant.origin());
        if grant.redirects() > 0 {
            return wrong(format!(
                "{entry} has redirects = {}, and redirects are not followed when {thing} is fetched: leave it out, and \
                 grant the address that it redirects to",
                grant.redirects()
            ));
        }
        let methods = grant.methods();
        let mut others = methods
            .iter()
            .filter(|it| !["GET", "HEAD"].contains(&it.as_str()));
        if let Some(other) = others.next() {
            return wrong(format!(
                "{entry} has the method {other}, and {thing} is fetched with GET alone: leave methods out"
            ));
        }
        if !methods.iter().any(|method| method.as_str() == "GET") {
            return wrong(format!(
                "{entry} lacks the method GET, with which {thing} is fetched: leave methods out"
            ));
        }
    }
    Ok(())
}
