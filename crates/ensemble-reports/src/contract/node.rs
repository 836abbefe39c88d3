//! A document of any shape as a tree in which every field and value has its line.
//!
//! YAML's one parser ([`ensemble_core::message::yaml`]) limits its input, so a tree has at most 16 levels
//! and 100,000 nodes.

use std::fmt;
use std::path::Path;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number};
use serde_saphyr::Spanned;

use ensemble_core::Result;
use ensemble_core::message::{written, yaml};

#[derive(Clone, Debug, PartialEq)]
pub struct DocumentNode {
    /// Line, starting at 1; 0 if unknown.
    pub line: u64,
    /// Column in characters, starting at 1; 0 if unknown.
    pub column: u64,
    pub value: NodeValue,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NodeValue {
    /// Null: `null`, `~` or an empty value.
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<DocumentNode>),
    /// Fields in their order.
    Map(Vec<MappingField>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct MappingField {
    pub name: String,
    /// Line of the name, starting at 1; 0 if unknown.
    pub line: u64,
    /// Column of the name in characters, starting at 1; 0 if unknown.
    pub column: u64,
    pub node: DocumentNode,
}

impl DocumentNode {
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let text = written::document(text);
        let mut node = yaml::parse::<LocatedNode>(&text, path)?.0;
        if let Some(lines) = LineMap::where_yaml_has_more(&text) {
            lines.correct(&mut node);
        }
        Ok(node)
    }

    /// The path of the value at a place of [`yaml::YamlFault`], such as `routes[1].to`. Where a mapping
    /// begins it is the mapping, not its first field. `None` for the document as a whole, and where it cannot be read.
    pub fn field_at(text: &str, place: (u64, u64)) -> Option<String> {
        let LocatedNode(root) = yaml::read_any(text).ok()?;
        let (mut path, mut node) = (String::new(), &root);
        loop {
            node = match &node.value {
                NodeValue::Map(fields) => {
                    let begun = |field: &&MappingField| (field.line, field.column) <= place;
                    match fields.iter().rfind(begun) {
                        Some(field) if place != (node.line, node.column) => {
                            let separator = if path.is_empty() { "" } else { "." };
                            path = format!("{path}{separator}{}", field.name);
                            &field.node
                        }
                        _ => break,
                    }
                }
                NodeValue::List(items) => {
                    let begun = |item: &Self| (item.line, item.column) <= place;
                    let Some(index) = items.iter().rposition(begun) else { break };
                    path = format!("{path}[{index}]");
                    &items[index]
                }
                _ => break,
            }
        }
        Some(path).filter(|path| !path.is_empty())
    }

    /// The tree of a document that was read without positions: each line and column is 0.
    pub fn without_places(json: &serde_json::Value) -> Self {
        let value = match json {
            serde_json::Value::Null => NodeValue::Null,
            serde_json::Value::Bool(value) => NodeValue::Bool(*value),
            serde_json::Value::Number(number) => NodeValue::Number(number.clone()),
            serde_json::Value::String(text) => NodeValue::Text(text.clone()),
            serde_json::Value::Array(items) => {
                NodeValue::List(items.iter().map(Self::without_places).collect())
            }
            serde_json::Value::Object(members) => {
                let field = |(name, member): (&String, &serde_json::Value)| MappingField {
                    name: name.clone(),
                    line: 0,
                    column: 0,
                    node: Self::without_places(member),
                };
                NodeValue::Map(members.iter().map(field).collect())
            }
        };
        Self { line: 0, column: 0, value }
    }

    pub fn fields(&self) -> Option<&[MappingField]> {
        match &self.value {
            NodeValue::Map(fields) => Some(fields),
            _ => None,
        }
    }

    pub const fn kind(&self) -> &'static str {
        match self.value {
            NodeValue::Null => "empty",
            NodeValue::Bool(_) => "true or false",
            NodeValue::Number(_) => "a number",
            NodeValue::Text(_) => "a text",
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "a mapping",
        }
    }

    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            NodeValue::Null => serde_json::Value::Null,
            NodeValue::Bool(value) => (*value).into(),
            NodeValue::Number(number) => number.clone().into(),
            NodeValue::Text(text) => text.clone().into(),
            NodeValue::List(nodes) => nodes.iter().map(Self::to_json).collect(),
            NodeValue::Map(fields) => {
                let members = fields.iter().map(|field| (field.name.clone(), field.node.to_json()));
                members.collect::<Map<_, _>>().into()
            }
        }
    }
}

/// Maps YAML's lines to lines of the file. For YAML a lone carriage return ends a line; for editors
/// and `grep` it does not.
struct LineMap(Vec<(u64, u64)>);

impl LineMap {
    /// For each YAML line, its line in the file and the number of characters before it there.
    /// `None` if both counts agree.
    fn where_yaml_has_more(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let mut returns = memchr::memchr_iter(b'\r', bytes);
        returns.find(|at| bytes.get(at + 1) != Some(&b'\n'))?;
        let (mut line, mut before, mut begins) = (1, 0, vec![(1, 0)]);
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            (line, before) = if character == '\n' { (line + 1, 0) } else { (line, before + 1) };
            let is_return = character == '\r' && characters.peek() != Some(&'\n');
            if character == '\n' || is_return {
                begins.push((line, before));
            }
        }
        Some(Self(begins))
    }

    fn place(&self, line: u64) -> Option<(u64, u64)> {
        let index = usize::try_from(line.checked_sub(1)?).ok()?;
        self.0.get(index).or_else(|| self.0.last()).copied()
    }

    fn correct(&self, node: &mut DocumentNode) {
        if let Some((line, before)) = self.place(node.line) {
            node.line = line;
            node.column += if node.column > 0 { before } else { 0 };
        }
        match &mut node.value {
            NodeValue::List(nodes) => nodes.iter_mut().for_each(|node| self.correct(node)),
            NodeValue::Map(fields) => {
                for field in fields {
                    if let Some((line, before)) = self.place(field.line) {
                        field.line = line;
                        field.column += before;
                    }
                    self.correct(&mut field.node);
                }
            }
            NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) | NodeValue::Text(_) => {}
        }
    }
}

/// A node as the parser delivers it: its position comes from outside, its content from inside.
struct LocatedNode(DocumentNode);

impl<'de> Deserialize<'de> for LocatedNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let spanned = Spanned::<NodeValue>::deserialize(deserializer)?;
        let (line, column) = (spanned.referenced.line(), spanned.referenced.column());
        Ok(Self(DocumentNode { line, column, value: spanned.value }))
    }
}

impl<'de> Deserialize<'de> for NodeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = NodeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> std::result::Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_none<E: de::Error>(self) -> std::result::Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(
        self,
        inner: D,
    ) -> std::result::Result<NodeValue, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> std::result::Result<NodeValue, E> {
        Ok(NodeValue::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> std::result::Result<NodeValue, E> {
        Ok(NodeValue::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> std::result::Result<NodeValue, E> {
        Ok(NodeValue::Number(value.into()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> std::result::Result<NodeValue, E> {
        Ok(NodeValue::Text(value.to_string()))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> std::result::Result<NodeValue, E> {
        Ok(NodeValue::Text(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> std::result::Result<NodeValue, E> {
        // JSON cannot represent `.inf` and `.nan`.
        Ok(Number::from_f64(value)
            .map_or_else(|| NodeValue::Text(value.to_string()), NodeValue::Number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<NodeValue, E> {
        Ok(NodeValue::Text(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> std::result::Result<NodeValue, E> {
        Ok(NodeValue::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<NodeValue, A::Error> {
        let mut nodes = Vec::new();
        while let Some(LocatedNode(node)) = list.next_element()? {
            nodes.push(node);
        }
        Ok(NodeValue::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<NodeValue, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            let LocatedNode(node) = map.next_value()?;
            let (line, column) = (name.referenced.line(), name.referenced.column());
            fields.push(MappingField { name: name.value, line, column, node });
        }
        Ok(NodeValue::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> DocumentNode {
        DocumentNode::parse(text, Path::new("x.yaml")).unwrap()
    }

    #[test]
    fn every_field_has_its_line() {
        let text = "# c\na: 1\nb:\n  - x: one\n    y: |\n      two\n  - [3, ~]\n\"c\": true\n";
        let node = parse(text);
        let fields = node.fields().unwrap();
        let lines: Vec<_> = fields.iter().map(|f| (f.name.as_str(), f.line)).collect();
        assert_eq!(lines, [("a", 2), ("b", 3), ("c", 8)]);
        let NodeValue::List(items) = &fields[1].node.value else { panic!("{fields:?}") };
        let inner = items[0].fields().unwrap();
        // A text of several lines begins in its first line.
        assert_eq!((inner[0].line, inner[1].line, inner[1].node.line), (4, 5, 6));
        assert_eq!(items[1].line, 7);
        let json =
            serde_json::json!({"a": 1, "b": [{"x": "one", "y": "two\n"}, [3, null]], "c": true});
        assert_eq!(node.to_json(), json);
    }

    #[test]
    fn a_tree_without_places_has_the_same_values() {
        let text = "a: 1\nb:\n  - x: one\n  - [3, ~, 1.5]\nc: true\nd: -7\ne: ''\n";
        let json: serde_json::Value = yaml::parse(text, Path::new("x.yaml")).unwrap();
        let tree = DocumentNode::without_places(&json);
        assert_eq!((tree.to_json(), tree.line, tree.column), (json, 0, 0));
        assert_eq!(tree.to_json(), parse(text).to_json());
    }

    #[test]
    fn lone_carriage_return_does_not_end_a_line() {
        let node = parse("a: 1\rb: 2\r\nc: 3\nd: [x,\r\r 4]\r");
        let fields = node.fields().unwrap();
        let places: Vec<_> = fields.iter().map(|f| (f.line, f.node.line, f.node.column)).collect();
        assert_eq!(places, [(1, 1, 4), (1, 1, 9), (2, 2, 4), (3, 3, 4)]);
        let NodeValue::List(items) = &fields[3].node.value else { panic!("{fields:?}") };
        assert_eq!((items[1].line, items[1].column), (3, 10));
    }

    #[test]
    fn a_place_has_its_field() {
        let text = "a: 1\nb:\n  c: [x, {d: 2}]\n  e:\n    - f: g\n      h: 4\nempty:\n";
        let field = |line, column| DocumentNode::field_at(text, (line, column));
        let of = |path: &str| Some(path.to_owned());
        assert_eq!([field(1, 1), field(1, 4), field(2, 1)], [None, of("a"), of("b")]);
        assert_eq!([field(3, 3), field(3, 6), field(3, 7)], [of("b"), of("b.c"), of("b.c[0]")]);
        assert_eq!([field(3, 10), field(3, 14)], [of("b.c[1]"), of("b.c[1].d")]);
        assert_eq!([field(5, 7), field(6, 10)], [of("b.e[0]"), of("b.e[0].h")]);
        assert_eq!([field(7, 7), field(9, 9)], [of("empty"), of("empty")]);
        assert_eq!(DocumentNode::field_at("a: [", (1, 4)), None);
        assert_eq!(DocumentNode::field_at("a: {b: .inf}", (1, 8)), of("a.b"));
    }

    #[test]
    fn json_is_accepted_and_invalid_yaml_is_rejected() {
        let node = parse("{\"a\":\n {\"b\": [1.5, \"x\"]}}");
        assert_eq!(node.fields().unwrap()[0].node.fields().unwrap()[0].line, 2);
        for bad in ["a: 1\na: 2\n", "a: &x 1\nb: *x\n", "a: [", "a: 1\n---\nb: 2\n"] {
            assert!(DocumentNode::parse(bad, Path::new("x.yaml")).is_err(), "{bad:?}");
        }
    }
}
