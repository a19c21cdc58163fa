//! `oncewire rules`: the rules for leading connections to a gateway.

use oncewire_config::Config;
use oncewire_intercept::rules::{FILTERS, Programs, RuleSet};

use crate::cli::Rules;

/// Prints a configuration's rules or the loaded ones, or removes the loaded ones.
pub(super) fn run(args: &Rules) -> anyhow::Result<()> {
    let config = Config::load(&args.config)?;
    let wanted = RuleSet::of(&config).map(RuleSet::on_this_machine);
    if args.remove || args.installed {
        // A configuration without rules may have had some when they were loaded.
        let rules = wanted.unwrap_or_else(|| RuleSet::none(&config));
        return super::print(if args.remove { remove(&rules)? } else { installed(&rules)? });
    }
    let Some(rules) = wanted else { return super::print(NONE) };
    let warnings: String = rules
        .obstacles()
        .iter()
        .map(|line| {
            format!(
                "# warning: {line}
"
            )
        })
        .collect();
    super::print(warnings + &excluded(&config, &rules) + &describe(&rules))
}

fn remove(rules: &RuleSet) -> anyhow::Result<String> {
    let (removed, table) = (Programs(rules).remove()?, rules.table());
    Ok(match removed {
        true => format!(
            "removed table inet {table} and its routes
"
        ),
        false => format!(
            "there is no table inet {table}
"
        ),
    })
}

fn installed(rules: &RuleSet) -> anyhow::Result<String> {
    Ok(Programs(rules).installed()?.unwrap_or_else(|| {
        "# not installed
"
        .to_owned()
    }))
}

/// Lists the policies within the rules, as comments for a shell.
fn excluded(config: &Config, rules: &RuleSet) -> String {
    let line = |(policy, conditions): (usize, &str)| {
        let line = config.policy_lines.get(policy.saturating_sub(1)).copied().unwrap_or_default();
        format!("# policy {policy} ({}, line {line}): {conditions} passes by\n", config.path.display())
    };
    rules.bypasses().into_iter().map(line).collect()
}

/// Writes the rules in a form for a shell.
fn describe(rules: &RuleSet) -> String {
    let lines = |commands: Vec<String>| commands.iter().map(|c| format!("ip {c}\n")).collect::<String>();
    let queue = |rule| FILTERS.map(|program| format!("{program} -t raw -A {rule}\n")).concat();
    let queue = rules.queue_rule().map_or_else(String::new, queue);
    format!("nft -f - <<'END'\n{}END\n{}{queue}", rules.nft(), lines(rules.routes()))
}

const NONE: &str = "# no rules: this configuration takes in no connections that were made to others\n";
