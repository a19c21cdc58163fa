//! The shape of JSON: paths of keys, and the types of their values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Each path with the types seen there, over any number of samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape(BTreeMap<String, BTreeSet<String>>);

impl Shape {
    /// Adds a sample.
    pub(super) fn add(&mut self, value: &Value) {
        self.walk("", value);
    }

    /// Adds a metric with its labels.
    pub(super) fn add_metric(&mut self, name: String, kind: &str) {
        self.0.entry(name).or_default().insert(kind.to_owned());
    }

    fn walk(&mut self, path: &str, value: &Value) {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        self.0.entry(path.to_owned()).or_default().insert(kind.to_owned());
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    self.walk(&format!("{path}.{key}"), value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.walk(&format!("{path}[]"), item)),
            _ => {}
        }
    }

    /// The faults of a later shape: absent paths, and values of other types.
    pub(super) fn faults(&self, later: &Self) -> Vec<String> {
        let values = |types: &BTreeSet<String>| -> BTreeSet<String> {
            types.iter().filter(|kind| *kind != "null").cloned().collect()
        };
        let fault = |(path, types): (&String, &BTreeSet<String>)| {
            let Some(found) = later.0.get(path) else { return Some(format!("{path} is absent")) };
            let (earlier, found) = (values(types), values(found));
            let fits = earlier.is_empty() || !found.is_empty() && found.is_subset(&earlier);
            (!fits).then(|| format!("{path} is {found:?}, not {earlier:?}"))
        };
        self.0.iter().filter_map(fault).collect()
    }

    /// As JSON, for a file.
    pub(super) fn to_json(&self) -> Value {
        let kinds = |types: &BTreeSet<String>| types.iter().cloned().collect::<Vec<_>>().join(" ");
        self.0.iter().map(|(path, types)| (path.clone(), json!(kinds(types)))).collect()
    }

    /// Reads the output of [`Self::to_json`].
    pub(super) fn from_json(value: &Value) -> Self {
        let kinds = |types: &Value| types.as_str().unwrap().split(' ').map(str::to_owned).collect();
        Self(value.as_object().unwrap().iter().map(|(path, types)| (path.clone(), kinds(types))).collect())
    }
}

#[test]
fn shape_allows_new_keys_and_nulls_alone() {
    let shape = |value: Value| {
        let mut shape = Shape::default();
        shape.add(&value);
        shape
    };
    let earlier = shape(json!({"a": 1, "b": [{"c": "x"}, {"c": null}], "d": null}));
    let read = Shape::from_json(&earlier.to_json());
    let later = shape(json!({"a": 2, "b": [{"c": "y", "e": 1}], "d": 3, "f": []}));
    assert_eq!(read.faults(&later), [""; 0]);
    assert_eq!(read.faults(&shape(json!({"a": "2", "b": [{"c": "y"}], "d": 3}))).len(), 1);
    assert_eq!(read.faults(&shape(json!({"a": 2, "b": [{}], "d": 3}))).len(), 1);
}
