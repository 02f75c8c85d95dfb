#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace trireme::app {

/// Words of a command line, as a list or as a text that is split at blanks.
class Words : public std::vector<std::string> {
 public:
  using std::vector<std::string>::vector;
  Words() = default;
  Words(const std::string& text) {
    std::istringstream stream(text);
    assign(std::istream_iterator<std::string>(stream), {});
  }
  Words(const char* text) : Words(std::string(text)) {}

  friend Words operator+(Words a, const Words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

}  // namespace trireme::app
