#include "io/json/task_json.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "io/json/json_text.hpp"
#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::io {

namespace {

using nlohmann::json;

/// Throws DataError unless a value is of this type.
void require(bool good, const json& value, const char* type, const std::string& where) {
  TRIREME_CHECK(good, DataError, "{} is {} instead of {}", where, json_quotation(value), type);
}

std::string text_of(const json& value, const std::string& where) {
  require(value.is_string(), value, "a text", where);
  return value.get<std::string>();
}

std::string text_member(const json& object, const char* name, const std::string& where) {
  return text_of(required_member(object, name, where), fmt::format("{}: \"{}\"", where, name));
}

/// Calls `take` with each array element and its path.
template <class Take>
void for_each(const json& array, const std::string& where, const Take& take) {
  require(array.is_array(), array, "an array", where);
  for (std::size_t i = 0; i < array.size(); ++i) take(array[i], fmt::format("{}[{}]", where, i));
}

template <class Take>
void for_each_member(const json& object, const char* name, const std::string& where, const Take& take) {
  const json& array = required_member(object, name, where);
  for_each(array, fmt::format("{}: \"{}\"", where, name), take);
}

std::vector<std::string> texts_of(const json& array, const std::string& where) {
  std::vector<std::string> texts;
  for_each(array, where, [&](const json& item, const std::string& place) { texts.push_back(text_of(item, place)); });
  return texts;
}

data::SquadQuestion parse_question(const json& object, const std::string& place, const std::string& path) {
  data::SquadQuestion question;
  question.id = text_member(object, "id", place);
  const std::string where = fmt::format("{}: question '{}'", path, shortened(question.id));
  question.question = text_member(object, "question", where);
  if (object.contains("is_impossible")) {
    const json& value = object["is_impossible"];
    require(value.is_boolean(), value, "true or false", where + ": \"is_impossible\"");
    question.is_impossible = value.get<bool>();
  }
  for_each_member(object, "answers", where, [&](const json& answer, const std::string& at) {
    const std::string start_place = at + ": \"answer_start\"";
    data::SquadAnswer made{text_member(answer, "text", at), 0};
    const json& start = required_member(answer, "answer_start", at);
    const bool fits =
        start.is_number_integer() && (!start.is_number_unsigned() || start.get<std::uint64_t>() <= INT64_MAX);
    require(fits, start, "a whole number", start_place);
    made.start = start.get<std::int64_t>();
    TRIREME_CHECK(made.start >= 0, DataError, "{} is {}, but must be at least 0", start_place, made.start);
    question.answers.push_back(std::move(made));
  });
  return question;
}

}  // namespace

data::RaceArticle parse_race_article(std::string_view line, const std::string& where) {
  const json object = parse_json(line, where);
  data::RaceArticle article;
  article.article = text_member(object, "article", where);
  article.questions = texts_of(required_member(object, "questions", where), where + ": \"questions\"");
  article.answers = texts_of(required_member(object, "answers", where), where + ": \"answers\"");
  for_each_member(object, "options", where, [&](const json& options, const std::string& place) {
    article.options.push_back(texts_of(options, place));
  });
  return article;
}

data::SquadFile parse_squad(std::string_view text, const std::string& path, data::BadLines& bad) {
  const json root = parse_json(text, path);
  data::SquadFile file;
  file.path = path;
  TRIREME_CHECK(root.is_object(), DataError, "{}: {} instead of an object", path, json_quotation(root));
  if (const auto version = root.find("version"); version != root.end() && version->is_string()) {
    file.has_impossible = version->get_ref<const std::string&>().starts_with("v2");
  }
  for_each_member(root, "data", path, [&](const json& article, const std::string& article_place) {
    for_each_member(article, "paragraphs", article_place, [&](const json& object, const std::string& place) {
      data::SquadParagraph paragraph;
      paragraph.context = text_member(object, "context", place);
      for_each_member(object, "qas", place, [&](const json& question, const std::string& question_place) {
        bad.attempt([&] { paragraph.questions.push_back(parse_question(question, question_place, path)); });
        if (question.is_object() && question.contains("is_impossible")) file.has_impossible = true;
      });
      file.paragraphs.push_back(std::move(paragraph));
    });
  });
  return file;
}

std::string squad_predictions_json(const std::map<std::string, std::string>& predictions) {
  return json(predictions).dump(4) + "\n";
}

std::string squad_n_best_json(const std::map<std::string, data::SquadPrediction>& predictions) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& [id, prediction] : predictions) {
    auto& candidates = object[id] = nlohmann::ordered_json::array();
    for (const data::SquadCandidate& candidate : prediction.n_best) {
      candidates.push_back({{"text", candidate.text},
                            {"probability", candidate.probability},
                            {"start_logit", candidate.start_logit},
                            {"end_logit", candidate.end_logit}});
    }
  }
  return object.dump(4) + "\n";
}

namespace {

/// Returns a text, number or truth value as text; none for another value.
std::optional<std::string> scalar_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_number()) return json_dump(value);
  return std::nullopt;
}

/// Adds the members of an object, with `prefix` before their names; to lists if it is one of a list's objects. Leaves
/// out what nests deeper than any task's fields.
void add_members(const json& object, const std::string& prefix, bool in_list, data::TaskDocument& document) {
  constexpr std::ptrdiff_t max_depth = 4;
  if (std::ranges::count(prefix, '.') > max_depth) return;
  for (const auto& [name, value] : object.items()) {
    const std::string key = prefix + name;
    data::TaskDocument::Field& field = document.fields[key];
    field.is_list = field.is_list || in_list || value.is_array();
    if (const auto text = scalar_of(value)) {
      field.texts.push_back(*text);
      continue;
    }
    for (const json& item : value.is_array() ? value : json::array()) {
      if (const auto text = scalar_of(item)) field.texts.push_back(*text);
      if (item.is_object()) add_members(item, key + ".", true, document);
    }
    if (value.is_object()) add_members(value, key + ".", in_list, document);
    // Deeper lists, empty objects and null are no fields.
    if (document.fields[key].texts.empty() && !(value.is_array() && value.empty())) document.fields.erase(key);
  }
}

}  // namespace

data::TaskDocument json_document(std::string_view line, const std::string& where) {
  const json object = parse_json_line(line, where);
  TRIREME_CHECK(object.is_object(), DataError, "{}: the line is {}, not an object", where, json_quotation(object));
  data::TaskDocument document;
  document.where = where;
  add_members(object, "", false, document);
  return document;
}

}  // namespace trireme::io
