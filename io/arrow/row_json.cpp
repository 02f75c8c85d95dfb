#include "io/arrow/row_json.hpp"

#ifdef TRIREME_HAS_ARROW

#include <arrow/api.h>
#include <arrow/extension_type.h>
#include <arrow/util/float16.h>
#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <string_view>

#include "src/base/error.hpp"

namespace trireme::io {
namespace {

using arrow::Type;

bool is_plain(char byte) { return static_cast<unsigned char>(byte) >= 0x20 && byte != '"' && byte != '\\'; }

void append_string(std::string_view text, std::string& out) {
  out += '"';
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && is_plain(text[end])) ++end;
    out += text.substr(begin, end - begin);
    begin = end + 1;
    if (end == text.size()) break;
    constexpr std::string_view named = "\b\t\n\f\r\"\\", letters = "btnfr\"\\";
    const std::size_t at = named.find(text[end]);
    if (at == named.npos) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(text[end]));
    } else {
      out += '\\';
      out += letters[at];
    }
  }
  out += '"';
}

template <class Number>
void append_number(Number number, std::string& out) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) {
      out += "null";
      return;
    }
  }
  fmt::format_to(std::back_inserter(out), "{}", number);
}

template <class Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

template <class Array>
void append_number(const arrow::Array& array, std::int64_t i, std::string& out) {
  append_number(as<Array>(array).Value(i), out);
}

void append_value(const arrow::Array& array, std::int64_t i, std::string& out);

template <class Array>
void append_list(const arrow::Array& array, std::int64_t i, std::string& out) {
  const Array& list = as<Array>(array);
  const std::int64_t begin = list.value_offset(i), length = list.value_length(i);
  out += '[';
  for (std::int64_t k = 0; k < length; ++k) {
    if (k > 0) out += ',';
    append_value(*list.values(), begin + k, out);
  }
  out += ']';
}

void append_member(std::string_view name, const arrow::Array& array, std::int64_t i, std::string& out) {
  if (!out.ends_with('{')) out += ',';
  append_string(name, out);
  out += ':';
  append_value(array, i, out);
}

void append_value(const arrow::Array& array, std::int64_t i, std::string& out) {
  if (array.IsNull(i)) {
    out += "null";
    return;
  }
  switch (array.type_id()) {
    case Type::BOOL:
      out += as<arrow::BooleanArray>(array).Value(i) ? "true" : "false";
      return;
    case Type::INT8:
      return append_number<arrow::Int8Array>(array, i, out);
    case Type::INT16:
      return append_number<arrow::Int16Array>(array, i, out);
    case Type::INT32:
      return append_number<arrow::Int32Array>(array, i, out);
    case Type::INT64:
      return append_number<arrow::Int64Array>(array, i, out);
    case Type::UINT8:
      return append_number<arrow::UInt8Array>(array, i, out);
    case Type::UINT16:
      return append_number<arrow::UInt16Array>(array, i, out);
    case Type::UINT32:
      return append_number<arrow::UInt32Array>(array, i, out);
    case Type::UINT64:
      return append_number<arrow::UInt64Array>(array, i, out);
    case Type::HALF_FLOAT:
      return append_number(arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(array).Value(i)).ToFloat(), out);
    case Type::FLOAT:
      return append_number<arrow::FloatArray>(array, i, out);
    case Type::DOUBLE:
      return append_number<arrow::DoubleArray>(array, i, out);
    case Type::STRING:
    case Type::BINARY:
      return append_string(as<arrow::BinaryArray>(array).GetView(i), out);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return append_string(as<arrow::LargeBinaryArray>(array).GetView(i), out);
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      return append_string(as<arrow::BinaryViewArray>(array).GetView(i), out);
    case Type::FIXED_SIZE_BINARY:
      return append_string(as<arrow::FixedSizeBinaryArray>(array).GetView(i), out);
    case Type::DATE32:
    case Type::DATE64:
    case Type::TIME32:
    case Type::TIME64:
    case Type::TIMESTAMP:
    case Type::DURATION:
    case Type::DECIMAL128:
    case Type::DECIMAL256:
      return append_string(array.GetScalar(i).ValueOrDie()->ToString(), out);  // fails for no such array
    case Type::LIST:
    case Type::MAP:
      return append_list<arrow::ListArray>(array, i, out);
    case Type::LARGE_LIST:
      return append_list<arrow::LargeListArray>(array, i, out);
    case Type::FIXED_SIZE_LIST:
      return append_list<arrow::FixedSizeListArray>(array, i, out);
    case Type::STRUCT: {
      const auto& fields = as<arrow::StructArray>(array);
      out += '{';
      for (int k = 0; k < fields.num_fields(); ++k) {
        append_member(fields.type()->field(k)->name(), *fields.field(k), i, out);
      }
      out += '}';
      return;
    }
    case Type::DICTIONARY: {
      const auto& codes = as<arrow::DictionaryArray>(array);
      return append_value(*codes.dictionary(), codes.GetValueIndex(i), out);
    }
    case Type::EXTENSION:
      return append_value(*as<arrow::ExtensionArray>(array).storage(), i, out);
    default:
      throw DataError("values of the type {} have no form in JSON", array.type()->ToString());
  }
}

}  // namespace

void append_row(const arrow::RecordBatch& batch, std::int64_t row, std::string& out) {
  out += '{';
  for (int k = 0; k < batch.num_columns(); ++k) {
    try {
      append_member(batch.column_name(k), *batch.column(k), row, out);
    } catch (const DataError& error) {
      throw DataError("the column '{}': {}", batch.column_name(k), error.what());
    }
  }
  out += "}\n";
}

}  // namespace trireme::io

#endif
