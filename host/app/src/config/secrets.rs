//! The secrets that the configuration names: never shown, and looked for where they must not be.

use crate::config::types::Config;

impl Config {
    /// Their names and values, as far as there are values.
    pub fn secrets(&self) -> Vec<(String, String)> {
        let endpoints = self.endpoints.values().map(|it| it.api_key_env.as_str());
        let servers = self.mcp.values().flat_map(super::mcp::McpTable::secrets);
        let own = [
            self.storage.url_env.as_str(),
            self.telemetry.headers_env.as_str(),
            self.mcp_server.token_env.as_str(),
            "TOOLHOLD_OCI_PASSWORD",
        ];
        let variables = endpoints.chain(servers).chain(own);
        let mut secrets: Vec<(String, String)> = variables
            .filter(|name| !name.is_empty())
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect();
        let granted = self.module.values().flat_map(|module| &module.secrets);
        secrets.extend(granted.filter_map(|secret| {
            let value = secret.value().ok()?;
            Some((secret.name.clone(), value))
        }));
        secrets.retain(|(_, value)| !value.trim().is_empty());
        secrets.sort();
        secrets.dedup();
        secrets
    }
}
