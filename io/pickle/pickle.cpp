#include "io/pickle/pickle.hpp"

#include <bit>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/shortened.hpp"

namespace trireme::io {

/// Stack machine of the format: not recursive, with node numbers on its stack.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& name, PickleDocument& document)
      : bytes_(bytes), name_(name), document_(document) {}

  void run() {
    while (!step(take(1)[0])) {
    }
    require(stack_.size() == 1 && marks_.empty(), "the stack holds other than one value at the end");
    document_.root_ = stack_.back();
    document_.size_bytes_ = at_;
  }

 private:
  using Node = std::uint32_t;

  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError("{}: byte {} of the pickled data: {}: the file is damaged, or no pickle", name_, opcode_at_,
                    problem);
  }
  void require(bool holds, const char* problem) const {
    if (!holds) fail(problem);
  }

  // Reading.
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail(fmt::format("{} bytes are wanted, {} are there", count, bytes_.size() - at_));
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
      fail(fmt::format("it has more than {} values, the limit", max_pickle_nodes));
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
    require(error == std::errc() && end == text.data() + text.size(), "a number has other characters than digits");
    push_integer(value);
  }
  void push_real(std::string_view text) {
    const auto value = parse_number<double>(text);
    require(value.has_value(), "a number is malformed");
    push(PickleNode{.kind = PickleKind::real, .real = *value});
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
  void push_object(Node function, Node arguments) {
    require(node(function).kind == PickleKind::global || node(function).kind == PickleKind::object,
            "something is called that is no function");
    require(node(arguments).kind == PickleKind::tuple, "the arguments of a call are no tuple");
    const Node none = add({});
    push_items(PickleKind::object, {function, arguments, none, none});
  }
  /// The node to which contents are added: `target`, or the contents of an object.
  Node contents(Node target, PickleKind kind) {
    if (node(target).kind == kind) return target;
    require(node(target).kind == PickleKind::object, "contents are added to a value that has none");
    if (node(node(target).items[3]).kind == PickleKind::none) {
      const Node made = add(PickleNode{.kind = kind});
      node(target).items[3] = made;
    }
    const Node result = node(target).items[3];
    require(node(result).kind == kind, "an object has contents of two kinds");
    return result;
  }
  void extend(const std::vector<Node>& values, PickleKind kind) {
    require(kind != PickleKind::dict || values.size() % 2 == 0, "a key has no value");
    std::vector<Node>& items = node(contents(top(), kind)).items;
    items.insert(items.end(), values.begin(), values.end());
  }
  void build() {
    const Node state = pop(), target = top();
    require(node(target).kind == PickleKind::object, "a state is given to a value that has none");
    Node& kept = node(target).items[2];
    require(node(kept).kind == PickleKind::none, "an object has two states");
    kept = state;
  }
  void put(std::uint64_t key) { memo_.insert_or_assign(key, top()); }
  void get(std::uint64_t key) {
    const auto found = memo_.find(key);
    require(found != memo_.end(), "a value is named that is not there");
    push(found->second);
  }
  std::uint64_t decimal() {
    const auto value = parse_number<std::uint32_t>(line());
    require(value.has_value(), "the name of a value is not a number");
    return *value;
  }

  /// Executes one opcode; returns true at the end.
  bool step(char code) {
    opcode_at_ = at_ - 1;
    switch (static_cast<unsigned char>(code)) {
      case '.':
        return true;
      case 0x80: {  // PROTO
        const auto protocol = number<std::uint8_t>();
        if (protocol > 5) fail(fmt::format("protocol {} is newer than 5", protocol));
        break;
      }
      case 0x95:  // FRAME
        require(number<std::uint64_t>() <= bytes_.size() - at_, "a frame is longer than the rest");
        break;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case '0':
        // Python's pickler emits these after a tuple that contains itself; a mark counts as a value.
        if (!marks_.empty() && marks_.back() == stack_.size()) {
          marks_.pop_back();
        } else {
          pop();
        }
        break;
      case '1':
        pop_mark();
        break;
      case '2':
        push(top());
        break;
      case 'N':
        push(PickleNode{});
        break;
      case 0x88:
      case 0x89:
        push_integer(static_cast<unsigned char>(code) == 0x88, PickleKind::boolean);
        break;
      case 'I':
      case 'L':
        push_decimal(line());
        break;
      case 'J':
        push_integer(number<std::int32_t>());
        break;
      case 'K':
        push_integer(number<std::uint8_t>());
        break;
      case 'M':
        push_integer(number<std::uint16_t>());
        break;
      case 0x8a:
        push_long(take(number<std::uint8_t>()));
        break;
      case 0x8b:
        push_long(take(number<std::uint32_t>()));
        break;
      case 'F':
        push_real(line());
        break;
      case 'G': {  // big-endian
        std::uint64_t bits = number<std::uint64_t>();
        bits = __builtin_bswap64(bits);
        push(PickleNode{.kind = PickleKind::real, .real = std::bit_cast<double>(bits)});
        break;
      }
      case 'S':
        push_quoted(line());
        break;
      case 'V':
        push_text(PickleKind::text, line());
        break;
      case 'T':
      case 'X':
        push_text(PickleKind::text, take(number<std::uint32_t>()));
        break;
      case 'U':
      case 0x8c:
        push_text(PickleKind::text, take(number<std::uint8_t>()));
        break;
      case 0x8d:
        push_text(PickleKind::text, take(number<std::uint64_t>()));
        break;
      case 'B':
        push_text(PickleKind::bytes, take(number<std::uint32_t>()));
        break;
      case 'C':
        push_text(PickleKind::bytes, take(number<std::uint8_t>()));
        break;
      case 0x8e:
      case 0x96:
        push_text(PickleKind::bytes, take(number<std::uint64_t>()));
        break;
      default:
        step_container(static_cast<unsigned char>(code));
    }
    return false;
  }

  void step_container(unsigned char code) {
    switch (code) {
      case ']':
        return push_items(PickleKind::list, {});
      case ')':
        return push_items(PickleKind::tuple, {});
      case '}':
        return push_items(PickleKind::dict, {});
      case 0x8f:
        return push_items(PickleKind::set, {});
      case 'l':
        return push_items(PickleKind::list, pop_mark());
      case 't':
        return push_items(PickleKind::tuple, pop_mark());
      case 'd':
        return push_items(PickleKind::dict, pop_mark());
      case 0x91:  // FROZENSET
        return push_items(PickleKind::set, pop_mark());
      case 0x85:
      case 0x86:
      case 0x87:
        return push_items(PickleKind::tuple, pop(code - 0x84u));
      case 'a':
        return extend(pop(1), PickleKind::list);
      case 'e':
        return extend(pop_mark(), PickleKind::list);
      case 's':
        return extend(pop(2), PickleKind::dict);
      case 'u':
        return extend(pop_mark(), PickleKind::dict);
      case 0x90:  // ADDITEMS
        return extend(pop_mark(), PickleKind::set);
      default:
        step_object(code);
    }
  }

  void step_object(unsigned char code) {
    switch (code) {
      case 'c': {
        const std::string_view module = line();
        return push_global(module, line());
      }
      case 0x93: {  // STACK_GLOBAL
        const Node name = pop(), module = pop();
        require(node(name).kind == PickleKind::text && node(module).kind == PickleKind::text,
                "the name of a global is no text");
        return push_global(node(module).text, node(name).text);
      }
      case 'R':
      case 0x81: {  // NEWOBJ
        const Node arguments = pop();
        return push_object(pop(), arguments);
      }
      case 0x92: {  // NEWOBJ_EX: keywords are appended to the other arguments
        const Node keywords = pop(), arguments = pop(), function = pop();
        require(node(arguments).kind == PickleKind::tuple, "the arguments of a call are no tuple");
        return push_object(function, add(PickleNode{.kind = PickleKind::tuple, .items = {arguments, keywords}}));
      }
      case 'o': {
        std::vector<Node> values = pop_mark();
        require(!values.empty(), "a call has no function");
        const Node function = values.front();
        values.erase(values.begin());
        return push_object(function, add(PickleNode{.kind = PickleKind::tuple, .items = std::move(values)}));
      }
      case 'i': {
        const std::string_view module = line();
        push_global(module, line());
        const Node function = pop();
        return push_object(function, add(PickleNode{.kind = PickleKind::tuple, .items = pop_mark()}));
      }
      case 'b':
        return build();
      case 'Q':
        return push_items(PickleKind::persistent, pop(1));
      case 'p':
        return put(decimal());
      case 'q':
        return put(number<std::uint8_t>());
      case 'r':
        return put(number<std::uint32_t>());
      case 0x94:  // MEMOIZE
        return put(memo_.size());
      case 'g':
        return get(decimal());
      case 'h':
        return get(number<std::uint8_t>());
      case 'j':
        return get(number<std::uint32_t>());
      default:
        fail(fmt::format("opcode {:#04x} is none that describes data", code));
    }
  }

  std::string_view bytes_;
  const std::string& name_;
  PickleDocument& document_;
  std::size_t at_ = 0, opcode_at_ = 0;
  std::vector<Node> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint64_t, Node> memo_;
};

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
