#include "io/pickle/pickle.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "src/base/error.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::io {

/// Stack machine of the format: not recursive, with node numbers on its stack.
struct PickleMachine {
  using Node = std::uint32_t;

  PickleMachine(std::string_view bytes, const std::string& name, PickleDocument& document)
      : bytes_(bytes), name_(name), document_(document) {}

  void run();

  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError("{}: byte {} of the pickled data: {}: the file is damaged or not a pickle", name_, opcode_at_,
                    problem);
  }
  void require(bool holds, const char* problem) const {
    if (!holds) fail(problem);
  }

  // Reading.
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail(fmt::format("{} bytes expected, {} left", count, bytes_.size() - at_));
    require(at_ + count <= max_pickle_bytes, "it is longer than the limit");
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    require(end != bytes_.npos, "a line does not end");
    const std::string_view text = take(end - at_);
    take(1);
    return text;
  }

  // The stack.
  void push(Node node) { stack_.push_back(node); }
  Node add(PickleNode node) {
    if (document_.nodes_.size() >= max_pickle_nodes) {
      fail(fmt::format("it exceeds the limit of {} values", max_pickle_nodes));
    }
    document_.nodes_.push_back(std::move(node));
    return static_cast<Node>(document_.nodes_.size() - 1);
  }
  void push(PickleNode node) { push(add(std::move(node))); }
  PickleNode& node(Node index) { return document_.nodes_[index]; }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Node top() const {
    require(stack_.size() > floor(), "the stack is empty");
    return stack_.back();
  }
  Node pop() {
    const Node value = top();
    stack_.pop_back();
    return value;
  }
  std::vector<Node> pop_mark() {
    require(!marks_.empty(), "a mark is missing");
    std::vector<Node> values(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }
  std::vector<Node> pop(std::size_t count) {
    std::vector<Node> values(count);
    for (std::size_t i = count; i > 0; --i) values[i - 1] = pop();
    return values;
  }

  // Values.
  void push_text(PickleKind kind, std::string_view text) { push(PickleNode{.kind = kind, .text = text}); }
  /// A text or bytes after its size.
  template <class Size>
  void push_sized(PickleKind kind) {
    push_text(kind, take(number<Size>()));
  }
  void push_integer(std::int64_t value, PickleKind kind = PickleKind::integer) {
    push(PickleNode{.kind = kind, .integer = value});
  }
  void push_items(PickleKind kind, std::vector<Node> items) {
    require(kind != PickleKind::dict || items.size() % 2 == 0, "a key has no value");
    push(PickleNode{.kind = kind, .items = std::move(items)});
  }
  /// Little-endian, two's complement, of any length.
  void push_long(std::string_view text) {
    if (text.size() > 8) return push_text(PickleKind::bytes, text);
    std::uint64_t value =
        !text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    std::memcpy(&value, text.data(), text.size());
    push_integer(static_cast<std::int64_t>(value));
  }
  void push_decimal(std::string_view text) {
    if (text == "00" || text == "01") return push_integer(text == "01", PickleKind::boolean);
    if (text.ends_with('L')) text.remove_suffix(1);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) return push_text(PickleKind::bytes, text);
    require(error == std::errc() && end == text.data() + text.size(), "an integer has characters other than digits");
    push_integer(value);
  }
  void push_real(std::string_view text) {
    const auto value = parse_number<double>(text);
    require(value.has_value(), "a number is malformed");
    push(PickleNode{.kind = PickleKind::real, .real = *value});
  }
  void push_big_endian(std::uint64_t bits) {
    push(PickleNode{.kind = PickleKind::real, .real = std::bit_cast<double>(__builtin_bswap64(bits))});
  }
  void push_quoted(std::string_view text) {
    const bool quoted = text.size() >= 2 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0];
    require(quoted, "a string has no quotes");
    push_text(PickleKind::text, text.substr(1, text.size() - 2));
  }
  void push_global(std::string_view module, std::string_view name) {
    require(module.size() + name.size() <= 1000, "a name has more than 1000 bytes");
    push(PickleNode{.kind = PickleKind::global, .name = fmt::format("{} {}", module, name)});
  }
  void push_global_of_lines() {
    const std::string_view module = line();
    push_global(module, line());
  }
  void push_global_of_stack() {
    const Node name = pop(), module = pop();
    require(node(name).kind == PickleKind::text && node(module).kind == PickleKind::text,
            "the name of a global is not text");
    push_global(node(module).text, node(name).text);
  }
  Node tuple_of(std::vector<Node> items) {
    return add(PickleNode{.kind = PickleKind::tuple, .items = std::move(items)});
  }
  void push_object(Node function, Node arguments) {
    require(node(function).kind == PickleKind::global || node(function).kind == PickleKind::object,
            "the callee of a call is not a function");
    require(node(arguments).kind == PickleKind::tuple, "the arguments of a call are not a tuple");
    const Node none = add({});
    push_items(PickleKind::object, {function, arguments, none, none});
  }
  void call() {
    const Node arguments = pop();
    push_object(pop(), arguments);
  }
  void call_with_keywords() {  // which are appended to the other arguments
    const Node keywords = pop(), arguments = pop(), function = pop();
    require(node(arguments).kind == PickleKind::tuple, "the arguments of a call are not a tuple");
    push_object(function, tuple_of({arguments, keywords}));
  }
  void call_marked() {
    std::vector<Node> values = pop_mark();
    require(!values.empty(), "a call has no function");
    const Node function = values.front();
    values.erase(values.begin());
    push_object(function, tuple_of(std::move(values)));
  }
  void call_named() {
    push_global_of_lines();
    const Node function = pop();
    push_object(function, tuple_of(pop_mark()));
  }
  /// Returns the node that holds items of `target`: itself, or the contents of an object.
  Node contents(Node target, PickleKind kind) {
    if (node(target).kind == kind) return target;
    require(node(target).kind == PickleKind::object, "items are added to a value that cannot hold any");
    if (node(node(target).items[3]).kind == PickleKind::none) {
      const Node made = add(PickleNode{.kind = kind});
      node(target).items[3] = made;
    }
    const Node result = node(target).items[3];
    require(node(result).kind == kind, "an object has both list and dict items");
    return result;
  }
  void extend(const std::vector<Node>& values, PickleKind kind) {
    require(kind != PickleKind::dict || values.size() % 2 == 0, "a key has no value");
    std::vector<Node>& items = node(contents(top(), kind)).items;
    items.insert(items.end(), values.begin(), values.end());
  }
  void build() {
    const Node state = pop(), target = top();
    require(node(target).kind == PickleKind::object, "a state is set on a value that cannot have one");
    Node& kept = node(target).items[2];
    require(node(kept).kind == PickleKind::none, "an object has two states");
    kept = state;
  }
  void begin(int protocol) const {
    if (protocol > 5) fail(fmt::format("protocol {} is newer than 5", protocol));
  }
  void check_frame(std::uint64_t size_bytes) const {
    require(size_bytes <= bytes_.size() - at_, "a frame is longer than the remaining data");
  }
  /// Python's pickler also pops a mark, after a tuple that contains itself.
  void pop_value_or_mark() {
    if (!marks_.empty() && marks_.back() == stack_.size()) {
      marks_.pop_back();
    } else {
      pop();
    }
  }
  void put(std::uint64_t key) { memo_.insert_or_assign(key, top()); }
  void get(std::uint64_t key) {
    const auto found = memo_.find(key);
    require(found != memo_.end(), "a reference to a value that does not exist");
    push(found->second);
  }
  std::uint64_t decimal() {
    const auto value = parse_number<std::uint32_t>(line());
    require(value.has_value(), "a value reference is not a number");
    return *value;
  }

  std::string_view bytes_;
  const std::string& name_;
  PickleDocument& document_;
  std::size_t at_ = 0, opcode_at_ = 0;
  std::vector<Node> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint64_t, Node> memo_;
};

namespace {

using Execute = void (*)(PickleMachine&);

/// Returns the functions of the opcodes that describe data, named as in Python's pickletools; null for all others.
constexpr std::array<Execute, 256> opcode_table() {
  using M = PickleMachine;
  using enum PickleKind;
  constexpr std::pair<unsigned char, Execute> opcodes[] = {
      {0x80, [](M& m) { m.begin(m.number<std::uint8_t>()); }},               // PROTO
      {0x95, [](M& m) { m.check_frame(m.number<std::uint64_t>()); }},        // FRAME
      {'(', [](M& m) { m.marks_.push_back(m.stack_.size()); }},              // MARK
      {'0', [](M& m) { m.pop_value_or_mark(); }},                            // POP
      {'1', [](M& m) { m.pop_mark(); }},                                     // POP_MARK
      {'2', [](M& m) { m.push(m.top()); }},                                  // DUP
      {'N', [](M& m) { m.push(PickleNode{}); }},                             // NONE
      {0x88, [](M& m) { m.push_integer(1, boolean); }},                      // NEWTRUE
      {0x89, [](M& m) { m.push_integer(0, boolean); }},                      // NEWFALSE
      {'I', [](M& m) { m.push_decimal(m.line()); }},                         // INT
      {'L', [](M& m) { m.push_decimal(m.line()); }},                         // LONG
      {'J', [](M& m) { m.push_integer(m.number<std::int32_t>()); }},         // BININT
      {'K', [](M& m) { m.push_integer(m.number<std::uint8_t>()); }},         // BININT1
      {'M', [](M& m) { m.push_integer(m.number<std::uint16_t>()); }},        // BININT2
      {0x8a, [](M& m) { m.push_long(m.take(m.number<std::uint8_t>())); }},   // LONG1
      {0x8b, [](M& m) { m.push_long(m.take(m.number<std::uint32_t>())); }},  // LONG4
      {'F', [](M& m) { m.push_real(m.line()); }},                            // FLOAT
      {'G', [](M& m) { m.push_big_endian(m.number<std::uint64_t>()); }},     // BINFLOAT
      {'S', [](M& m) { m.push_quoted(m.line()); }},                          // STRING
      {'V', [](M& m) { m.push_text(text, m.line()); }},                      // UNICODE
      {'T', [](M& m) { m.push_sized<std::uint32_t>(text); }},                // BINSTRING
      {'X', [](M& m) { m.push_sized<std::uint32_t>(text); }},                // BINUNICODE
      {'U', [](M& m) { m.push_sized<std::uint8_t>(text); }},                 // SHORT_BINSTRING
      {0x8c, [](M& m) { m.push_sized<std::uint8_t>(text); }},                // SHORT_BINUNICODE
      {0x8d, [](M& m) { m.push_sized<std::uint64_t>(text); }},               // BINUNICODE8
      {'B', [](M& m) { m.push_sized<std::uint32_t>(bytes); }},               // BINBYTES
      {'C', [](M& m) { m.push_sized<std::uint8_t>(bytes); }},                // SHORT_BINBYTES
      {0x8e, [](M& m) { m.push_sized<std::uint64_t>(bytes); }},              // BINBYTES8
      {0x96, [](M& m) { m.push_sized<std::uint64_t>(bytes); }},              // BYTEARRAY8
      {']', [](M& m) { m.push_items(list, {}); }},                           // EMPTY_LIST
      {')', [](M& m) { m.push_items(tuple, {}); }},                          // EMPTY_TUPLE
      {'}', [](M& m) { m.push_items(dict, {}); }},                           // EMPTY_DICT
      {0x8f, [](M& m) { m.push_items(set, {}); }},                           // EMPTY_SET
      {'l', [](M& m) { m.push_items(list, m.pop_mark()); }},                 // LIST
      {'t', [](M& m) { m.push_items(tuple, m.pop_mark()); }},                // TUPLE
      {'d', [](M& m) { m.push_items(dict, m.pop_mark()); }},                 // DICT
      {0x91, [](M& m) { m.push_items(set, m.pop_mark()); }},                 // FROZENSET
      {0x85, [](M& m) { m.push_items(tuple, m.pop(1)); }},                   // TUPLE1
      {0x86, [](M& m) { m.push_items(tuple, m.pop(2)); }},                   // TUPLE2
      {0x87, [](M& m) { m.push_items(tuple, m.pop(3)); }},                   // TUPLE3
      {'a', [](M& m) { m.extend(m.pop(1), list); }},                         // APPEND
      {'e', [](M& m) { m.extend(m.pop_mark(), list); }},                     // APPENDS
      {'s', [](M& m) { m.extend(m.pop(2), dict); }},                         // SETITEM
      {'u', [](M& m) { m.extend(m.pop_mark(), dict); }},                     // SETITEMS
      {0x90, [](M& m) { m.extend(m.pop_mark(), set); }},                     // ADDITEMS
      {'c', [](M& m) { m.push_global_of_lines(); }},                         // GLOBAL
      {0x93, [](M& m) { m.push_global_of_stack(); }},                        // STACK_GLOBAL
      {'R', [](M& m) { m.call(); }},                                         // REDUCE
      {0x81, [](M& m) { m.call(); }},                                        // NEWOBJ
      {0x92, [](M& m) { m.call_with_keywords(); }},                          // NEWOBJ_EX
      {'o', [](M& m) { m.call_marked(); }},                                  // OBJ
      {'i', [](M& m) { m.call_named(); }},                                   // INST
      {'b', [](M& m) { m.build(); }},                                        // BUILD
      {'Q', [](M& m) { m.push_items(persistent, m.pop(1)); }},               // BINPERSID
      {'p', [](M& m) { m.put(m.decimal()); }},                               // PUT
      {'q', [](M& m) { m.put(m.number<std::uint8_t>()); }},                  // BINPUT
      {'r', [](M& m) { m.put(m.number<std::uint32_t>()); }},                 // LONG_BINPUT
      {0x94, [](M& m) { m.put(m.memo_.size()); }},                           // MEMOIZE
      {'g', [](M& m) { m.get(m.decimal()); }},                               // GET
      {'h', [](M& m) { m.get(m.number<std::uint8_t>()); }},                  // BINGET
      {'j', [](M& m) { m.get(m.number<std::uint32_t>()); }},                 // LONG_BINGET
  };
  std::array<Execute, 256> table{};
  for (const auto& [code, execute] : opcodes) table[code] = execute;
  return table;
}

}  // namespace

void PickleMachine::run() {
  static constexpr std::array<Execute, 256> opcodes = opcode_table();
  for (;;) {
    opcode_at_ = at_;
    const auto code = number<std::uint8_t>();
    if (code == '.') break;
    if (opcodes[code] == nullptr) fail(fmt::format("opcode {:#04x} does not describe data", code));
    opcodes[code](*this);
  }
  require(stack_.size() == 1 && marks_.empty(), "the stack does not hold exactly one value at the end");
  document_.root_ = stack_.back();
  document_.size_bytes_ = at_;
}

PickleDocument::PickleDocument(std::string_view bytes, const std::string& name) {
  PickleMachine(bytes, name, *this).run();
}

const PickleNode& PickleValue::node() const { return document_->nodes()[node_]; }

std::optional<PickleValue> PickleValue::entries() const {
  if (is(PickleKind::dict)) return *this;
  if (!is(PickleKind::object)) return std::nullopt;
  if (item(3).is(PickleKind::dict)) return item(3);
  return std::nullopt;
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  std::optional<PickleValue> from = entries(), found;
  if (!from && is(PickleKind::object) && state().is(PickleKind::dict)) from = state();
  if (!from) return std::nullopt;
  for (std::size_t i = 0; i < from->size(); i += 2) {
    const PickleValue name = from->item(i);
    if (name.is(PickleKind::text) && name.text() == key) found = from->item(i + 1);
  }
  return found;
}

std::string PickleValue::description() const {
  constexpr const char* kinds[] = {"None",       "a boolean", "an integer", "a number", "a text",
                                   "bytes",      "a list",    "a tuple",    "a dict",   "a set",
                                   "the global", "a call of", "a reference"};
  const std::string text = kinds[static_cast<int>(kind())];
  if (is(PickleKind::global)) return text + " " + shortened(name());
  if (is(PickleKind::object)) return text + " " + shortened(item(0).name());
  return text;
}

}  // namespace trireme::io
