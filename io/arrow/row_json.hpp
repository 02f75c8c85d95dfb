#pragma once

#include <cstdint>
#include <string>

namespace arrow {
class RecordBatch;
}

namespace trireme::io {

/// Appends a row to `out` as a line of JSON, with line feed, in the form that `open_table` describes. Throws DataError
/// that names the column if its type has no such form.
void append_row(const arrow::RecordBatch& batch, std::int64_t row, std::string& out);

}  // namespace trireme::io
