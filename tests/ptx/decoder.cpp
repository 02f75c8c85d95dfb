#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tests/ptx/module.hpp"
#include "tests/ptx/operations/operations.hpp"
#include "tests/ptx/statements.hpp"

namespace trireme::ptx {
namespace {

std::size_t round_up(std::size_t size, std::size_t multiple) { return (size + multiple - 1) / multiple * multiple; }

/// Places variables one after another. Returns the offset of the next.
std::size_t place(std::size_t& end, const Variable& variable) {
  const std::size_t offset = round_up(end, variable.alignment);
  end = offset + variable.size;
  return offset;
}

/// A named place in memory.
struct Symbol {
  Space space;
  std::uint64_t address;
  bool is_dynamic = false;
};

/// Names valid between two braces.
struct Scope {
  struct Registers {
    int first, count;
  };
  std::map<std::string, int, std::less<>> registers;
  std::map<std::string, Registers, std::less<>> ranges;  // `%r<40>`: %r0 to %r39
  std::map<std::string, Symbol, std::less<>> symbols;
};

class Decoder {
 public:
  explicit Decoder(const Module& module) : module_(module) {}

  Kernel decode_kernel(const Function& function) {
    kernel_.name = function.name;
    kernel_.max_threads = function.max_threads;
    scopes_.emplace_back();
    for (const Variable& parameter : function.parameters) {
      const std::size_t offset = place(kernel_.parameter_bytes, parameter);
      kernel_.parameters.push_back({offset, parameter.size});
      scopes_.back().symbols[std::string(parameter.name)] = {Space::parameter, offset};
    }
    decode_body(function);
    kernel_.shared_bytes = round_up(kernel_.shared_bytes, 16);
    // Dynamic shared memory follows static shared memory, whose size is known now.
    for (const int row : dynamic_rows_) kernel_.constants.push_back({row, kernel_.shared_bytes});
    for (const auto& [value, row] : constants_) kernel_.constants.push_back({row, value});
    return std::move(kernel_);
  }

 private:
  using Labels = std::map<std::string_view, int>;
  /// Branches of a body with targets still unknown.
  using Branches = std::vector<std::pair<std::size_t, std::string_view>>;

  void decode_body(const Function& function) {
    const std::size_t outer = scopes_.size();
    scopes_.emplace_back();
    Labels labels;
    Branches branches;
    for (const Statement& statement : statements_of(function.body, function.line)) {
      try {
        switch (statement.kind) {
          case Statement::Kind::begin:
            scopes_.emplace_back();
            break;
          case Statement::Kind::end:
            scopes_.pop_back();
            break;
          case Statement::Kind::label:
            labels[statement.opcode] = static_cast<int>(kernel_.code.size());
            break;
          case Statement::Kind::directive:
            declare(statement);
            break;
          case Statement::Kind::instruction:
            decode_instruction(statement, function, branches);
        }
      } catch (const PtxError& error) {
        refuse(statement.line, statement.text, error.what());
      }
    }
    labels[end_of_body] = static_cast<int>(kernel_.code.size());
    for (const auto& [branch, label] : branches) {
      Instruction& instruction = kernel_.code[branch];
      const auto target = labels.find(label);
      if (target == labels.end()) refuse(instruction.line, instruction.text, "there is no such label");
      instruction.target = target->second;
    }
    scopes_.resize(outer);
    if (function.is_kernel) {
      kernel_.code.emplace_back().kind = Kind::exit;
      kernel_.code.back().text = "end of the kernel";
    }
  }

  void declare(const Statement& statement) {
    Scope& scope = scopes_.back();
    const std::vector<std::string_view>& words = statement.words;
    if (statement.opcode == ".reg") {
      static_cast<void>(size_of_type(words.at(0)));
      for (std::size_t i = 1; i < words.size(); ++i) {
        if (words[i] == ",") continue;
        const std::string name(words[i]);
        if (i + 2 < words.size() && words[i + 1] == "<") {
          const auto count = static_cast<int>(integer_of(words[i + 2]));
          scope.ranges[name] = {kernel_.rows, count};
          kernel_.rows += count;
          i += 3;
        } else {
          scope.registers[name] = kernel_.rows++;
        }
      }
    } else if (statement.opcode == ".local" || statement.opcode == ".param") {
      // Parameters of a call are memory of the thread.
      scope.symbols[std::string(variable_in(statement).name)] = {Space::local,
                                                                 place(kernel_.local_bytes, variable_in(statement))};
    } else if (statement.opcode == ".shared") {
      scope.symbols[std::string(variable_in(statement).name)] = {Space::shared,
                                                                 place(kernel_.shared_bytes, variable_in(statement))};
    } else if (statement.opcode != ".pragma" && statement.opcode != ".loc") {
      throw PtxError("this directive is unknown");
    }
  }
  static Variable variable_in(const Statement& statement) {
    std::vector<std::string_view> words{statement.opcode};
    words.insert(words.end(), statement.words.begin(), statement.words.end());
    return variable_of(words);
  }

  void decode_instruction(const Statement& statement, const Function& function, Branches& branches) {
    Instruction instruction;
    instruction.line = statement.line;
    instruction.text = statement.text;
    instruction.negated = statement.negated;
    if (!statement.guard.empty()) instruction.guard = register_row(statement.guard);
    if (statement.opcode.starts_with("call")) return decode_call(statement);
    if (statement.opcode == "bra" || statement.opcode == "bra.uni" ||
        (statement.opcode == "ret" && !function.is_kernel)) {
      instruction.kind = Kind::branch;
      branches.emplace_back(kernel_.code.size(), statement.opcode == "ret" ? end_of_body : statement.words.at(0));
    } else if (statement.opcode == "ret" || statement.opcode == "exit") {
      instruction.kind = Kind::exit;
    } else {
      decode_operation(statement, instruction);
    }
    kernel_.code.push_back(instruction);
  }

  /// The opcode in the table of operations. Sets the address space.
  static std::string plain_opcode(const Statement& statement, Instruction& instruction) {
    std::string opcode(statement.opcode);
    if (opcode.starts_with("ld.") || opcode.starts_with("st.")) {
      constexpr std::pair<std::string_view, Space> spaces[] = {{".global", Space::global},
                                                               {".const", Space::global},
                                                               {".shared", Space::shared},
                                                               {".local", Space::local},
                                                               {".param", Space::parameter}};
      for (const auto& [suffix, space] : spaces) {
        if (opcode.compare(2, suffix.size(), suffix) == 0) {
          instruction.space = space;
          opcode.erase(2, suffix.size());
        }
      }
      if (opcode.starts_with("ld.nc.")) opcode.erase(2, 3);
    } else if (opcode.starts_with("mov.b") && statement.first_list >= 0) {
      opcode = (statement.first_list == 0 ? "unpack." : "pack.") + std::to_string(statement.words.size() - 1) +
               opcode.substr(3);
    } else if (opcode.starts_with("wgmma.mma_async")) {
      opcode += "." + std::to_string(statement.words.size());  // the left factor is in registers or in shared memory
    }
    return opcode;
  }

  void decode_operation(const Statement& statement, Instruction& instruction) {
    const auto found = operations().find(plain_opcode(statement, instruction));
    if (found == operations().end()) throw PtxError(fmt::format("the instruction {} is unknown", statement.opcode));
    const OperationEntry& entry = found->second;
    const auto operands = static_cast<int>(statement.words.size());
    if (operands != entry.operands || static_cast<int>(statement.addresses.size()) != entry.addresses) {
      throw PtxError(fmt::format("{} operands and {} addresses are expected", entry.operands, entry.addresses));
    }
    instruction.run = entry.run;
    instruction.kind = entry.kind;
    for (std::size_t i = 0; i < statement.words.size(); ++i) instruction.rows[i] = row_of(statement.words[i]);
    if (entry.has_mask) instruction.mask = instruction.rows[statement.words.size() - 1];
    for (std::size_t i = 0; i < statement.addresses.size(); ++i) {
      const Statement::Address& address = statement.addresses[i];
      if (const Symbol* symbol = find_symbol(address.base);
          symbol != nullptr && instruction.space == Space::parameter) {
        instruction.space = symbol->space;
      }
      instruction.addresses[i] = {row_of(address.base), address.offset};
    }
  }

  /// `call (result), function, (arguments)`: the function's body follows, with its parameters bound to the caller's.
  void decode_call(const Statement& statement) {
    std::vector<std::string_view> words = statement.words;
    const auto name = std::find_if(words.begin(), words.end(),
                                   [&](std::string_view word) { return module_.function(word) != nullptr; });
    if (name == words.end()) throw PtxError("the function is unknown");
    const Function& function = *module_.function(*name);
    std::vector<Variable> formal = function.results;
    formal.insert(formal.end(), function.parameters.begin(), function.parameters.end());
    words.erase(name);
    if (words.size() != formal.size() || !statement.guard.empty() || scopes_.size() > max_depth) {
      throw PtxError("this call is not understood");
    }
    Scope bound;
    for (std::size_t i = 0; i < formal.size(); ++i) {
      const Symbol* actual = find_symbol(words[i]);
      if (actual == nullptr) throw PtxError(fmt::format("{} is unknown", words[i]));
      bound.symbols[std::string(formal[i].name)] = *actual;
    }
    std::vector<Scope> callers = std::exchange(scopes_, {});
    scopes_.push_back(std::move(bound));
    decode_body(function);
    scopes_ = std::move(callers);
  }

  int row_of(std::string_view word) {
    constexpr std::pair<std::string_view, int> reserved[] = {{"_", ignored_row},        {"%tid.x", tid_row},
                                                             {"%ntid.x", ntid_row},     {"%ctaid.x", ctaid_row},
                                                             {"%nctaid.x", nctaid_row}, {"%laneid", lane_row}};
    for (const auto& [name, row] : reserved) {
      if (word == name) return row;
    }
    if (word == "%tid.y" || word == "%tid.z" || word == "%ctaid.y" || word == "%ctaid.z") return constant(0);
    if (word == "%ntid.y" || word == "%ntid.z" || word == "%nctaid.y" || word == "%nctaid.z") return constant(1);
    if (word.starts_with("0f") || word.starts_with("0F") || word.starts_with("0d") || word.starts_with("0D")) {
      return constant(static_cast<std::uint64_t>(integer_of("0x" + std::string(word.substr(2)))));
    }
    if (word[0] == '-' || (word[0] >= '0' && word[0] <= '9')) {
      return constant(static_cast<std::uint64_t>(integer_of(word)));
    }
    if (const Symbol* symbol = find_symbol(word)) {
      if (!symbol->is_dynamic) return constant(symbol->address);
      dynamic_rows_.push_back(kernel_.rows);
      return kernel_.rows++;
    }
    return register_row(word);
  }

  int register_row(std::string_view word) const {
    const std::size_t digits = word.find_last_not_of("0123456789") + 1;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->registers.find(word); found != scope->registers.end()) return found->second;
      if (digits == word.size()) continue;
      if (const auto range = scope->ranges.find(word.substr(0, digits)); range != scope->ranges.end()) {
        const std::int64_t number = integer_of(word.substr(digits));
        if (number < range->second.count) return range->second.first + static_cast<int>(number);
      }
    }
    throw PtxError(fmt::format("{} is unknown", word));
  }

  const Symbol* find_symbol(std::string_view word) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->symbols.find(word); found != scope->symbols.end()) return &found->second;
    }
    if (const auto found = module_symbols_.find(word); found != module_symbols_.end()) return &found->second;
    const Variable* variable = module_.variable(word);
    if (variable == nullptr) return nullptr;
    Symbol symbol{variable->space, 0, variable->is_dynamic};
    if (variable->space == Space::global) {
      symbol.address = reinterpret_cast<std::uintptr_t>(module_.global(word)->data());
    } else if (!variable->is_dynamic) {
      symbol.address = place(kernel_.shared_bytes, *variable);
    }
    return &(module_symbols_[std::string(word)] = symbol);
  }

  int constant(std::uint64_t value) {
    const auto [found, is_new] = constants_.try_emplace(value, kernel_.rows);
    if (is_new) ++kernel_.rows;
    return found->second;
  }

  static constexpr std::string_view end_of_body = "end";
  static constexpr std::size_t max_depth = 100;
  const Module& module_;
  Kernel kernel_;
  std::vector<Scope> scopes_;
  std::map<std::string, Symbol, std::less<>> module_symbols_;
  std::map<std::uint64_t, int> constants_;
  std::vector<int> dynamic_rows_;
};

}  // namespace

Kernel decode(const Module& module, const Function& kernel) { return Decoder(module).decode_kernel(kernel); }

}  // namespace trireme::ptx
