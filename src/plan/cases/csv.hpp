#pragma once

#include <string>
#include <vector>

namespace trireme::plan {

struct CsvRecord {
  int line = 0;  ///< first line of the record in the file, from 1
  std::vector<std::string> fields;
};

/// Records of a CSV text (RFC 4180): fields separated by commas, quoted if they contain commas, quotes (doubled) or
/// line ends; lines end with LF or CRLF. Empty lines and a byte order mark are skipped. DataError, with `name` and the
/// line, for a quote that is not closed or is followed by text.
std::vector<CsvRecord> parse_csv(const std::string& name, const std::string& text);

}  // namespace trireme::plan
