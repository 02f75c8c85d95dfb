#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Python's pickle format, protocols 0 to 5, as data: nothing is imported, called or executed. A function call in the
/// file (of REDUCE, NEWOBJ, BUILD and so on) becomes an `object`: a record of the function's name and its arguments. A
/// file's reader interprets the names it expects, and refuses others.
namespace trireme::io {

enum class PickleKind : std::uint8_t {
  none,
  boolean,
  integer,  ///< at most 64 bits
  real,
  text,   ///< also a Python 2 string
  bytes,  ///< also an integer beyond 64 bits, its bytes or digits
  list,
  tuple,
  dict,  ///< alternating keys and values
  set,
  global,      ///< the name of a class or function, "MODULE NAME"
  object,      ///< function, arguments, and state and contents, if any, or none
  persistent,  ///< an external reference, its only item
};

/// A node of the pickled value. Items are node numbers; they may form cycles.
struct PickleNode {
  PickleKind kind = PickleKind::none;
  std::int64_t integer = 0;  ///< also of booleans
  double real = 0;
  std::string_view text = {};  ///< bytes of a text or of bytes, a part of the file
  std::string name = {};       ///< name of a global
  std::vector<std::uint32_t> items = {};
};

class PickleDocument;

/// A value in a document, which must outlive it. Readers that traverse items must bound their depth.
class PickleValue {
 public:
  PickleValue(const PickleDocument& document, std::uint32_t node) : document_(&document), node_(node) {}
  PickleKind kind() const { return node().kind; }
  bool is(PickleKind kind) const { return this->kind() == kind; }
  bool is_none() const { return is(PickleKind::none); }
  /// Returns whether it is the global MODULE NAME.
  bool is_global(std::string_view name) const { return is(PickleKind::global) && node().name == name; }
  /// Returns whether it is a call to MODULE NAME.
  bool calls(std::string_view name) const { return is(PickleKind::object) && item(0).is_global(name); }
  std::int64_t integer() const { return node().integer; }
  double real() const { return node().real; }
  std::string_view text() const { return node().text; }
  const std::string& name() const { return node().name; }
  std::size_t size() const { return node().items.size(); }
  PickleValue item(std::size_t index) const { return {*document_, node().items[index]}; }
  /// Arguments of an object, a tuple or none.
  PickleValue arguments() const { return item(1); }
  /// State of an object, or none.
  PickleValue state() const { return item(2); }
  /// Returns a dict of the entries: a dict itself, or those of an OrderedDict or of another object. None otherwise.
  std::optional<PickleValue> entries() const;
  /// Returns the value under a text key of `entries`, or of an object's state. The last duplicate key wins.
  std::optional<PickleValue> find(std::string_view key) const;
  /// Kind and name, for messages: "a call of builtins eval".
  std::string description() const;
  const PickleNode& node() const;

 private:
  const PickleDocument* document_;
  std::uint32_t node_;
};

/// Limits of a document; larger ones are refused.
inline constexpr std::size_t max_pickle_bytes = std::size_t{512} << 20;
inline constexpr std::size_t max_pickle_nodes = std::size_t{1} << 23;

/// A pickled value.
class PickleDocument {
 public:
  /// Parses the pickle at the start of `bytes`, which must outlive this object. `name` is the file's, for messages.
  /// Time and memory are linear in its size. DataError if it is damaged, beyond the limits, or uses an opcode that
  /// needs a running Python.
  PickleDocument(std::string_view bytes, const std::string& name);
  PickleDocument& operator=(PickleDocument&&) = delete;

  /// Size of the pickle in `bytes`.
  std::size_t size_bytes() const { return size_bytes_; }
  PickleValue root() const { return {*this, root_}; }
  const std::deque<PickleNode>& nodes() const { return nodes_; }

 private:
  friend struct PickleMachine;
  std::deque<PickleNode> nodes_;
  std::uint32_t root_ = 0;
  std::size_t size_bytes_ = 0;
};

}  // namespace trireme::io
