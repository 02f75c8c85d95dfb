#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "src/prepare/text_reader.hpp"

namespace trireme::io {

// Tables in the formats of Apache Arrow: Parquet, and Arrow's IPC files (Feather) and streams. They are read as lines
// of JSON, an object for each row.

/// Version of Apache Arrow in this program; empty if it was built without.
std::string arrow_version();

/// Returns the format of the file at `path` if it is a table, as its first bytes say. Returns null for other files, and
/// always in a program without Arrow. Throws IoError if the file cannot be read.
const prepare::Container* find_table(const std::string& path);

/// Opens the row groups or record batches of a table that begin in `range`. Their begins are estimates: the file's
/// bytes in proportion to the unpacked sizes of row groups, or to the number of record batches. A stream must be read
/// entirely.
///
/// Each row is a line of JSON without blanks, with the members that `columns` names: keys as in "title,meta.text", or
/// `prepare::all_columns`, or none. Null is null, as are numbers that are not finite. Structs are objects, and lists
/// arrays; a map is an array of objects with "key" and "value". Times and decimals are strings. Binary data are taken
/// as text, so that a line may have bytes that are not UTF-8.
///
/// Memory: a batch of about 8 MiB of Parquet, and its pages; or a record batch. Throws DataError with the row group
/// where the file is damaged, or a column's type has no form in JSON.
std::unique_ptr<prepare::ByteSource> open_table(const prepare::Container& format, const prepare::FileRange& range,
                                                std::string_view columns);

/// Returns the first byte from `at` on where a row group or record batch begins, or the size of the file.
std::int64_t row_group_begin(const prepare::Container& format, const std::string& path, std::int64_t at);

}  // namespace trireme::io
