#include "tests/ptx/module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tests/ptx/statements.hpp"

namespace trireme::ptx {
namespace {

int count_lines(std::string_view text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

/// End of the part in braces that begins at `begin`.
std::size_t end_of_braces(std::string_view text, std::size_t begin) {
  int open = 0;
  for (std::size_t at = begin; (at = text.find_first_of("{}", at)) != std::string_view::npos; ++at) {
    open += text[at] == '{' ? 1 : -1;
    if (open == 0) return at;
  }
  throw PtxError("the PTX ends within braces");
}

/// Reads what precedes the body of a function.
Function function_of(std::string_view header) {
  Function function;
  const std::vector<std::string_view> words = words_of(header);
  std::vector<Variable>* list = nullptr;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ".entry") function.is_kernel = true;
    if (words[i] == ".param") {
      const auto end = std::find_if(words.begin() + static_cast<std::ptrdiff_t>(i), words.end(),
                                    [](std::string_view word) { return word == "," || word == ")"; });
      const std::vector<std::string_view> declaration(words.begin() + static_cast<std::ptrdiff_t>(i), end);
      list = function.name.empty() ? &function.results : &function.parameters;
      list->push_back(variable_of(declaration));
      i = static_cast<std::size_t>(end - words.begin());
    } else if (words[i] == ".maxntid") {
      function.max_threads = static_cast<int>(integer_of(words.at(i + 1)));
      i += 5;
    } else if (function.name.empty() &&
               (words[i][0] == '_' || std::isalpha(static_cast<unsigned char>(words[i][0])) != 0)) {
      function.name = words[i];
    }
  }
  return function;
}

}  // namespace

Module::Module(std::string text) : text_(std::move(text)) { parse(); }

void Module::parse() {
  const std::string_view text = text_;
  int line = 1;
  std::size_t at = 0;
  const auto pass = [&](std::size_t end) {
    line += count_lines(text.substr(at, end - at));
    at = end;
  };
  while (true) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n", at);
    if (begin == std::string_view::npos || text[begin] == 0) return;
    pass(begin);
    const std::size_t end_of_line = std::min(text.find('\n', at), text.size());
    const std::string_view first = text.substr(at, text.find_first_of(" \t\n", at) - at);
    try {
      if (first == ".section") {
        pass(end_of_braces(text, text.find('{', at)) + 1);
      } else if (first.starts_with("//") || first == ".version" || first == ".target" || first == ".address_size" ||
                 first == ".file") {
        pass(end_of_line);
      } else {
        const std::size_t end = text.find_first_of("{;", at);
        if (end == std::string_view::npos) throw PtxError("the PTX ends within a declaration");
        const std::string_view header = text.substr(at, end - at);
        if (header.find(".entry") == std::string_view::npos && header.find(".func") == std::string_view::npos) {
          const std::size_t semicolon = text.find(';', at);
          declare(text.substr(at, semicolon - at));
          pass(semicolon + 1);
        } else if (text[end] == ';') {
          pass(end + 1);  // a function that is defined later
        } else {
          Function function = function_of(header);
          const std::size_t close = end_of_braces(text, end);
          function.body = text.substr(end + 1, close - end - 1);
          function.line = line + count_lines(header);
          functions_[std::string(function.name)] = function;
          pass(close + 1);
        }
      }
    } catch (const PtxError& error) {
      refuse(line, text.substr(at, end_of_line - at), error.what());
    }
  }
}

void Module::declare(std::string_view declaration) {
  const std::vector<std::string_view> words = words_of(declaration);
  const Variable variable = variable_of(words);
  if (variable.space == Space::global) {
    std::vector<std::byte>& bytes = globals_[std::string(variable.name)];
    bytes.resize(variable.size);
    std::size_t at = 0;
    const auto open = std::find(words.begin(), words.end(), "{");
    for (auto word = open; word < words.end() && at < bytes.size(); ++word) {
      if (std::isdigit(static_cast<unsigned char>(word->front())) != 0) {
        bytes[at++] = static_cast<std::byte>(integer_of(*word));
      }
    }
    if (open != words.end() && variable.element_bytes != 1) throw PtxError("initial values are understood for bytes");
  }
  variables_[std::string(variable.name)] = variable;
}

std::vector<std::string> Module::kernel_names() const {
  std::vector<std::string> names;
  for (const auto& [name, function] : functions_) {
    if (function.is_kernel) names.push_back(name);
  }
  return names;
}

const Kernel& Module::kernel(const std::string& name) {
  if (const auto known = kernels_.find(name); known != kernels_.end()) return known->second;
  if (!has(name)) throw PtxError(fmt::format("the PTX has no kernel {}", name));
  return kernels_[name] = decode(*this, functions_.at(name));
}

const Function* Module::function(std::string_view name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : &found->second;
}
const Variable* Module::variable(std::string_view name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? nullptr : &found->second;
}
const std::vector<std::byte>* Module::global(std::string_view name) const {
  const auto found = globals_.find(name);
  return found == globals_.end() ? nullptr : &found->second;
}
const std::vector<std::byte>* Module::global_at(std::uintptr_t address) const {
  for (const auto& [name, bytes] : globals_) {
    if (address - reinterpret_cast<std::uintptr_t>(bytes.data()) < bytes.size()) return &bytes;
  }
  return nullptr;
}

}  // namespace trireme::ptx
