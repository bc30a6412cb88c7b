//! `show` of `tests/components/units` as a function of an MCP server, which runs it in its own process.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::transport::stdio;
use rmcp::{ServiceExt as _, tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Quantity {
    value: f64,
    unit: String,
}

#[derive(Deserialize, JsonSchema)]
struct Show {
    quantity: Quantity,
    decimals: u8,
}

#[derive(Clone)]
struct Units;

#[tool_router(server_handler)]
impl Units {
    #[tool(description = "As people write it")]
    fn show(&self, Parameters(show): Parameters<Show>) -> String {
        let Quantity { value, unit } = show.quantity;
        let decimals = usize::from(show.decimals);
        format!("{value:.decimals$} {unit}")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Units.serve(stdio()).await?.waiting().await?;
    Ok(())
}
