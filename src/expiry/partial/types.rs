//! The operand of `$type`: names and numbers of BSON types.

use mongodb::bson::{Bson, RawBson};

use crate::{
    error::{Code, Refusal},
    number::Number,
};

/// The BSON types by number and by the alias MongoDB gives them.
const TYPES: [(u8, &str); 21] = [
    (0x01, "double"),
    (0x02, "string"),
    (0x03, "object"),
    (0x04, "array"),
    (0x05, "binData"),
    (0x06, "undefined"),
    (0x07, "objectId"),
    (0x08, "bool"),
    (0x09, "date"),
    (0x0A, "null"),
    (0x0B, "regex"),
    (0x0C, "dbPointer"),
    (0x0D, "javascript"),
    (0x0E, "symbol"),
    (0x0F, "javascriptWithScope"),
    (0x10, "int"),
    (0x11, "timestamp"),
    (0x12, "long"),
    (0x13, "decimal"),
    (0xFF, "minKey"),
    (0x7F, "maxKey"),
];

/// The type numbers that the operand of `$type` names.
pub(super) fn parse(value: &Bson) -> Result<Vec<u8>, Refusal> {
    let values = match value {
        Bson::Array(values) if !values.is_empty() => values.as_slice(),
        Bson::Array(_) => return Err(Refusal::new(Code::BadValue, "$type needs at least one type")),
        single => std::slice::from_ref(single),
    };
    let mut types = Vec::new();
    for value in values {
        let known = types.len();
        match value {
            Bson::String(alias) if alias == "number" => types.extend([0x01, 0x10, 0x12, 0x13]),
            Bson::String(alias) => types.extend(TYPES.iter().filter(|(_, a)| a == alias).map(|(number, _)| number)),
            other => {
                let number = RawBson::try_from(other.clone())
                    .ok()
                    .and_then(|raw| Number::from_raw(raw.as_raw_bson_ref())?.as_i64())
                    .map(|n| if n == -1 { 0xFF } else { n });
                types.extend(TYPES.iter().filter(|(t, _)| Some(i64::from(*t)) == number).map(|(number, _)| number));
            }
        }
        if types.len() == known {
            return Err(Refusal::new(Code::BadValue, format!("$type: {value} is not the name or number of a type")));
        }
    }
    Ok(types)
}
