#pragma once

#include <map>
#include <string>
#include <string_view>

#include "src/data/tasks/race.hpp"
#include "src/data/tasks/squad.hpp"
#include "src/data/tasks/squad_answers.hpp"
#include "src/data/tasks/zero_shot/task_document.hpp"

namespace trireme::io {

/// Reads a line of RACE: {"article", "questions", "options", "answers"}. Throws DataError that begins with `where`.
data::RaceArticle parse_race_article(std::string_view line, const std::string& where);

/// Reads a file of SQuAD 1.1 or 2.0: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers":
/// [{"text", "answer_start"}], "is_impossible"}]}]}]}. It is of version 2.0 if its "version" begins with "v2" or a
/// question has "is_impossible". Throws DataError naming the file and the member that is missing or of another type; a
/// question's faults go through `bad`.
data::SquadFile parse_squad(std::string_view text, const std::string& path, data::BadLines& bad);

/// Returns predictions in SQuAD's official format, {"id": "text"}.
std::string squad_predictions_json(const std::map<std::string, std::string>& predictions);

/// Returns {"id": [{"text", "probability", "start_logit", "end_logit"}]}, the best first.
std::string squad_n_best_json(const std::map<std::string, data::SquadPrediction>& predictions);

/// Reads a JSON object as a task's document. Throws DataError that begins with `where` if the line is no object, or a
/// value is of a kind that documents do not have. `where` becomes that of the document.
data::TaskDocument json_document(std::string_view line, const std::string& where);

}  // namespace trireme::io
