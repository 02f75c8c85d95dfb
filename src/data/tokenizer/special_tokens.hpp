#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Properties of an added token, with the names of tokenizer.json.
struct AddedToken {
  bool special = false, single_word = false, lstrip = false, rstrip = false, normalized = false;
  bool operator==(const AddedToken&) const = default;
};

/// Tokens of a tokenizer that have a meaning of their own, besides the ids that its text becomes. Corpora and
/// checkpoints hold them in front of the tokenizer's definition; import and export convert them from and to the files
/// of transformers.
struct SpecialTokens {
  std::optional<std::int32_t> bos = {}, eos = {}, pad = {};  ///< tokenizer_config.json's
  std::vector<std::int32_t> stops = {};           ///< ids that end generation; empty: the one that ends documents
  std::vector<std::int32_t> prefix = {};          ///< ids that the post-processor puts before a text
  std::map<std::int32_t, AddedToken> added = {};  ///< by id; empty: as the definition lists them
  /// Texts for other programs, by name: files beside tokenizer.json, and its `post_processor`.
  std::map<std::string, std::string> files = {};

  bool operator==(const SpecialTokens&) const = default;
  /// The id that begins documents: `bos`, else the last of the prefix.
  std::optional<std::int32_t> beginning() const;
  /// Greatest id of all, -1 if there is none.
  std::int32_t max_id() const;
};

/// Returns printable ASCII lines: a title with the number of lines after it, then one line for each member that is not
/// empty. Empty for an empty structure.
std::string special_tokens_text(const SpecialTokens& special);

/// Payload of a tokenizer in its two parts.
struct SplitPayload {
  SpecialTokens special;
  std::string_view definition;
};
/// Throws DataError naming the line that is damaged.
SplitPayload split_payload(std::string_view payload);

}  // namespace trireme::data
