//! The output of `train`.

use oncewire_lab::train::{TrainConfig, Trained};
use serde::Serialize;

use crate::table::{bytes, percent_of};

/// The object on standard output; its keys are a contract with scripts (docs/reference/json.md).
#[derive(Serialize)]
struct Json {
    period: u32,
    log_memory: u64,
    bytes: u64,
    redundant: u64,
    sample_bytes: Vec<u8>,
    savings: f64,
    savings_paper: f64,
    savings_maxp: f64,
    curve: Vec<JsonAddition>,
}

#[derive(Serialize)]
struct JsonAddition {
    byte: u8,
    savings: f64,
}

/// Writes the report as one line of JSON.
pub(super) fn json(config: &TrainConfig, trained: &Trained) -> serde_json::Result<String> {
    let curve = trained.curve.iter().map(|added| JsonAddition { byte: added.byte, savings: added.savings });
    let json = Json {
        period: config.period,
        log_memory: config.log_memory,
        bytes: trained.bytes,
        redundant: trained.redundant,
        sample_bytes: trained.table.bytes().collect(),
        savings: trained.savings,
        savings_paper: trained.paper,
        savings_maxp: trained.maxp,
        curve: curve.collect(),
    };
    Ok(serde_json::to_string(&json)? + "\n")
}

/// Writes the line for the configuration, with its worth as comments above.
pub(super) fn line(config: &TrainConfig, trained: &Trained) -> String {
    let percent = |share| percent_of(share, 2);
    let numbers: Vec<String> = trained.table.bytes().map(|byte| byte.to_string()).collect();
    format!(
        "# Trained on {}, of which {} repeat. Before any entropy stage, at p = {},\n\
         # SAMPLEBYTE saves {} with these bytes and {} with the paper's; MAXP saves {}.\n\
         sample_bytes = [{}]\n",
        bytes(trained.bytes),
        bytes(trained.redundant),
        config.period,
        percent(trained.savings),
        percent(trained.paper),
        percent(trained.maxp),
        numbers.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use oncewire_lab::train::Addition;

    use super::*;

    fn trained() -> Trained {
        Trained {
            table: "0,32".parse().unwrap(),
            savings: 0.5,
            paper: 0.375,
            maxp: 0.625,
            curve: vec![Addition { byte: 32, savings: 0.25 }, Addition { byte: 0, savings: 0.5 }],
            bytes: 1 << 20,
            redundant: 3 << 10,
        }
    }

    #[test]
    fn json_has_the_documented_form() {
        let expected = concat!(
            r#"{"period":64,"log_memory":268435456,"bytes":1048576,"redundant":3072,"sample_bytes":[0,32],"#,
            r#""savings":0.5,"savings_paper":0.375,"savings_maxp":0.625,"#,
            r#""curve":[{"byte":32,"savings":0.25},{"byte":0,"savings":0.5}]}"#,
            "\n"
        );
        assert_eq!(json(&TrainConfig::default(), &trained()).unwrap(), expected);
    }

    #[test]
    fn people_get_a_line_for_the_configuration() {
        let expected = "\
# Trained on 1 MiB, of which 3 KiB repeat. Before any entropy stage, at p = 64,
# SAMPLEBYTE saves 50.00 % with these bytes and 37.50 % with the paper's; MAXP saves 62.50 %.
sample_bytes = [0, 32]
";
        assert_eq!(line(&TrainConfig::default(), &trained()), expected);
    }
}
