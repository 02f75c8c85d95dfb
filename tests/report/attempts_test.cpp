#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "io/metrics/attempt_file.hpp"
#include "io/metrics/metrics_reader.hpp"
#include "src/base/error.hpp"
#include "src/report/attempt_table.hpp"
#include "src/report/goodput.hpp"
#include "src/report/time_text.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::test {
namespace {

using report::Attempt;
using report::AttemptStart;
using report::JobNote;

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// An attempt of job `job` that began to train at `time`.
Attempt attempt_at(std::int64_t time, const std::string& job) {
  Attempt attempt;
  attempt.start = AttemptStart{};
  attempt.start->time = time;
  attempt.start->job = job;
  return attempt;
}

TEST(TimeText, ReadsIso8601WithOffsets) {
  EXPECT_EQ(report::parse_time("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(report::parse_time("2026-11-23T22:10:00+01:00"), report::parse_time("2026-11-23T21:10:00Z"));
  EXPECT_EQ(report::parse_time("2026-11-23T21:10:00-0130"), report::parse_time("2026-11-23T22:40:00Z"));
  for (const char* text : {"", "then", "2026-11-23", "2026-11-23T21:10:00", "2026-13-23T21:10:00Z",
                           "2026-11-23T21:10:00+", "2026-11-23T21:1x:00Z"}) {
    EXPECT_EQ(report::parse_time(text), std::nullopt) << text;
  }
  EXPECT_EQ(report::utc_stamp(*report::parse_time("2026-02-28T23:59:59-01:00")), "2026-03-01T00:59:59Z");
}

TEST(JoinAttempts, GivesAnAttemptTheExitCodeOfItsJob) {
  const std::vector<Attempt> attempts = report::join_attempts(
      {attempt_at(105, "7"), attempt_at(205, "7")},
      {JobNote{100, "7", 0, {}}, JobNote{190, "7", 50, 137}, JobNote{200, "7", 50, {}}, JobNote{290, "7", 90, 75}});
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].job_status, 137);
  EXPECT_EQ(attempts[1].job_status, 75);
  EXPECT_EQ(attempts[0].job_end, 190);
}

TEST(JoinAttempts, FindsTheAttemptsOfABatchFileWithoutSlurm) {
  const std::vector<Attempt> attempts = report::join_attempts(
      {attempt_at(105, ""), attempt_at(205, "")},
      {JobNote{100, "10998", 0, {}}, JobNote{190, "10998", 50, 137}, JobNote{200, "10998", 50, {}}});
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].job_status, 137);
  EXPECT_EQ(attempts[1].job_time, 200);
}

TEST(JoinAttempts, KeepsAJobThatEndedBeforeTraining) {
  const std::vector<Attempt> attempts = report::join_attempts(
      {attempt_at(205, "7")}, {JobNote{100, "7", 0, {}}, JobNote{110, "7", 0, 2}, JobNote{200, "7", 0, {}}});
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_FALSE(attempts[0].start);
  EXPECT_EQ(attempts[0].job_status, 2);
  EXPECT_TRUE(attempts[1].start);
  EXPECT_EQ(attempts[1].job_status, std::nullopt);
}

TEST(Goodput, DividesTheTimeOfARunByCause) {
  using report::Loss;
  Attempt killed = attempt_at(110, "");
  killed.start->began = 100;
  killed.saves = {{200, 50, {}}};
  killed.spent = {.saving_ms = 4000, .evaluating_ms = 2000};
  killed.rewinds = {{150, 40, 30, 10000}, {210, 90, 40, 30000}};  // the second one was lost
  Attempt resumed = attempt_at(440, "");
  resumed.start->began = 400;
  resumed.start->previous_written = 300;  // iterations after the checkpoint
  resumed.start->load_ms = 15000;
  resumed.start->lost_ms = 80000;
  resumed.start->iteration = 50;
  resumed.end = report::AttemptEnd{500, 90, 0, ""};
  report::Goodput goodput = report::goodput_of({killed, resumed}, 120000, 0, {});
  EXPECT_EQ(goodput.total_s, 400);
  EXPECT_EQ(goodput.trained_s, 110);
  EXPECT_EQ(goodput.lost(Loss::start_up), 10 + 25);
  EXPECT_EQ(goodput.lost(Loss::loading), 15);
  EXPECT_EQ(goodput.lost(Loss::saving), 4);
  EXPECT_EQ(goodput.lost(Loss::evaluation), 2);
  EXPECT_EQ(goodput.lost(Loss::repeated), 80);
  EXPECT_EQ(goodput.lost(Loss::rewound), 10);
  EXPECT_EQ(goodput.lost(Loss::waiting), 100);
  EXPECT_EQ(goodput.lost(Loss::other), 44);
  // A copy of the metrics is younger than the end.
  EXPECT_EQ(report::goodput_of({killed, resumed}, 120000, 0, 9000).total_s, 400);
  EXPECT_EQ(report::text_of(goodput),
            "27.5 % of 6 min 40 s; lost: start-up 35 s, loading checkpoints 15 s, saving checkpoints 4.0 s, "
            "evaluation 2.0 s, iterations repeated 1 min 20 s, iterations rewound 10 s, waiting between attempts 1 min "
            "40 s, other 44 s");
}

TEST(RestartSeconds, LastFromTheEndOfTheRanksBeforeToTraining) {
  report::Run run;
  run.attempts = report::join_attempts(
      {attempt_at(110, "7"), attempt_at(190, "7"), attempt_at(400, "8")},
      {{100, "7", 0, {}}, {150, "7", 5, 6}, {152, "7", 5, {}}, {300, "7", 9, 6}, {390, "8", 9, {}}});
  EXPECT_EQ(report::restart_seconds(run, 0), std::nullopt);
  EXPECT_EQ(report::restart_seconds(run, 1), 40);
  EXPECT_EQ(report::restart_seconds(run, 2), std::nullopt);  // another job
}

TEST(Goodput, ReadsAttemptsOfOlderVersions) {
  Attempt first = attempt_at(110, "7");
  first.job_time = 100;
  first.job_end = 150;
  Attempt second = attempt_at(190, "7");
  report::Goodput goodput = report::goodput_of({first, second}, 30000, 5000, 200);
  EXPECT_EQ(goodput.total_s, 100);
  EXPECT_EQ(goodput.lost(report::Loss::start_up), 10);
  EXPECT_EQ(goodput.lost(report::Loss::repeated), 5);
  EXPECT_EQ(goodput.lost(report::Loss::waiting), 40);
  EXPECT_EQ(goodput.lost(report::Loss::other), 15);
  EXPECT_EQ(report::goodput_of({}, 30000, 0, 200).total_s, 0);
}

TEST(AttemptFile, ReadsBackWhatItWrote) {
  const TemporaryDirectory directory;
  const std::string metrics = directory / "metrics.jsonl", path = io::AttemptFile::beside(metrics);
  AttemptStart start{.time = 1000,
                     .job = "42",
                     .host = "node \"1\"",
                     .version = "0.1.0",
                     .device = "cpu",
                     .ranks = 4,
                     .axes = {{"tensor", 2}, {"data", 2}},
                     .parameters = 123,
                     .peak_tflops = 989,
                     .iteration = 0,
                     .options = {{"lr", "0.1", true}, {"seed", "1234", false}}};
  {
    io::AttemptFile file(metrics);
    file.note_start(io::AttemptFile::Opening::replace, start);
    file.note_save({1010, 5, {.saving_ms = 1.5, .evaluating_ms = 2.5}});
    file.note_rewind({1020, 7, 4, 12.5});
  }
  std::ofstream(path, std::ios::app) << R"({"event": "sa)";  // a killed attempt
  start.iteration = 5;
  start.began = 1100;
  start.previous_written = 1050;
  start.load_ms = 250;
  start.lost_iterations = 3;
  start.lost_ms = 12.5;
  {
    io::AttemptFile file(metrics);
    file.note_start(io::AttemptFile::Opening::append, start);
    file.note_end({2000, 9, 75, "why", {.saving_ms = 4}});
  }
  const std::vector<Attempt> attempts = io::read_attempts(path);
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].saves.size(), 1u);
  EXPECT_EQ(attempts[0].saves[0].iteration, 5);
  ASSERT_EQ(attempts[0].rewinds.size(), 1u);
  EXPECT_EQ(attempts[0].rewinds[0].time, 1020);
  EXPECT_EQ(attempts[0].rewinds[0].iteration, 7);
  EXPECT_EQ(attempts[0].rewinds[0].lost_ms, 12.5);
  EXPECT_EQ(attempts[0].rewinds[0].to, 4);
  EXPECT_FALSE(attempts[0].end);
  EXPECT_EQ(attempts[0].start->began, 0);
  EXPECT_EQ(attempts[0].spent.evaluating_ms, 2.5);
  EXPECT_EQ(attempts[1].start->host, "node \"1\"");
  EXPECT_EQ(attempts[1].start->axes, start.axes);
  EXPECT_EQ(attempts[1].start->options, start.options);
  EXPECT_EQ(attempts[1].start->lost_iterations, 3);
  EXPECT_EQ(attempts[1].start->began, 1100);
  EXPECT_EQ(attempts[1].start->previous_written, 1050);
  EXPECT_EQ(attempts[1].start->load_ms, 250);
  EXPECT_EQ(attempts[1].spent.saving_ms, 4);
  EXPECT_EQ(attempts[1].start->peak_tflops, 989);
  EXPECT_EQ(attempts[1].end->exit_code, 75);
  EXPECT_EQ(attempts[1].end->time, 2000);
  EXPECT_EQ(attempts[1].end->reason, "why");
  io::AttemptFile(metrics).note_start(io::AttemptFile::Opening::replace, start);
  EXPECT_EQ(io::read_attempts(path).size(), 1u);
}

TEST(AttemptFile, SkipsDamagedLines) {
  const TemporaryDirectory directory;
  write(directory / "lives",
        "\xff\n[]\n{\"event\": \"end\"}\n{\"event\": \"start\", \"time\": \"2026-11-23T21:10:00Z\", "
        "\"ranks\": \"x\", \"grid\": [1], \"options\": 3}\n{\"event\": \"start\"}\n");
  const std::vector<Attempt> attempts = io::read_attempts(directory / "lives");
  ASSERT_EQ(attempts.size(), 1u);
  EXPECT_EQ(attempts[0].start->ranks, 0);
  EXPECT_TRUE(io::read_attempts(directory / "absent").empty());
}

TEST(JobNotes, AreReadFromTheLinesOfBatchFiles) {
  const TemporaryDirectory directory;
  write(directory / "lives",
        "2026-11-23T22:10:00+01:00 job 7 step 0\nthen job 7 step 0\n2026-11-23T22:20:00+01:00 job 7 step 12 returned "
        "75\n");
  const std::vector<JobNote> notes = io::read_job_notes(directory / "lives");
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].time, report::parse_time("2026-11-23T21:10:00Z"));
  EXPECT_FALSE(notes[0].status);
  EXPECT_EQ(notes[1].step, 12);
  EXPECT_EQ(notes[1].status, 75);
}

std::string update_line(std::int64_t iteration, double loss) {
  return fmt::format(
      R"({{"iteration": {}, "consumed_samples": {}, "lm_loss": {}, "grad_norm": 1, "learning_rate": 0.1, "skipped": {}, )"
      R"("elapsed_ms": 10, "tokens_per_second": 100, "tflops_per_rank": 2}})"
      "\n",
      iteration, 8 * iteration, loss, iteration == 2 ? "true" : "false");
}

TEST(ReadMetrics, CountsTheNewestRecordsAndRepeatedWork) {
  const TemporaryDirectory directory;
  std::string text;
  for (const int iteration : {1, 2, 3, 4}) text += update_line(iteration, 5);
  text += "{\"iteration\": 4, \"valid_loss\": 9}\n";
  for (const int iteration : {3, 4, 5}) text += update_line(iteration, 4);
  text +=
      "{\"iteration\": 4, \"valid_loss\": 4.5}\n{\"iteration\": 5, \"valid_set\": \"books\", \"valid_loss\": 4.25}\n";
  write(directory / "metrics", text + "{\"iteration\": 6, \"lm_lo");
  report::Run run;
  io::read_metrics(directory / "metrics", 100, run);
  EXPECT_EQ(run.iterations, 5);
  EXPECT_EQ(run.first_iteration, 1);
  EXPECT_EQ(run.last_iteration, 5);
  EXPECT_EQ(run.consumed_samples, 40);
  EXPECT_EQ(run.repeated_iterations, 2);
  EXPECT_EQ(run.repeated_ms, 20);
  EXPECT_EQ(run.trained_ms, 50);
  EXPECT_DOUBLE_EQ(run.mean_tokens_per_second(), 100);
  EXPECT_EQ(run.skipped_updates, 1);
  EXPECT_EQ(run.damaged_lines, 1);
  EXPECT_EQ(run.first_damaged_line, 11);
  const std::vector<report::Column> loss = run.curves[report::lm_loss]->columns();
  ASSERT_EQ(loss.size(), 5u);
  EXPECT_EQ(loss[1].mean(), 5);
  EXPECT_EQ(loss[2].mean(), 4);
  EXPECT_EQ(run.validation.at("").least()->value, 4.5);
  EXPECT_EQ(run.validation.at("").count(), 1);
  EXPECT_EQ(run.validation.at("books").last()->value, 4.25);
  EXPECT_FALSE(run.curves[report::memory]);
}

TEST(ReadMetrics, ReadsTheLayersWithExpertsOfTheLastIteration) {
  const TemporaryDirectory directory;
  std::string text;
  for (const char* layers :
       {R"([{"layer": 1, "router_entropy": 9}])",
        R"([{"layer": 1, "balance_loss": 1.5, "router_entropy": 2}, {"layer": 3, "dropped_choices": null}, 7])"}) {
    text += fmt::format(R"({{"iteration": {}, "lm_loss": 2, "experts": {}}})"
                        "\n",
                        text.empty() ? 1 : 2, layers);
  }
  write(directory / "metrics", text);
  report::Run run;
  io::read_metrics(directory / "metrics", 100, run);
  ASSERT_EQ(run.expert_layers.size(), 2u);
  EXPECT_EQ(run.expert_layers[0].layer, 1);
  EXPECT_EQ(run.expert_layers[0].values[0], 1.5);
  EXPECT_EQ(run.expert_layers[0].values[2], 2);
  EXPECT_EQ(run.expert_layers[1].layer, 3);
  for (const std::optional<double>& value : run.expert_layers[1].values) EXPECT_EQ(value, std::nullopt);
}

TEST(ReadMetrics, ReadsSegmentOrderFromEvaluations) {
  const TemporaryDirectory directory;
  write(directory / "metrics",
        update_line(1, 5) +
            R"({"iteration": 1, "valid_loss": 4, "valid_sop_loss": 0.75, "valid_sop_accuracy": 0.5})"
            "\n"
            R"({"iteration": 1, "test_loss": 3, "test_ppl": 20, "test_sop_loss": 0.625, "test_sop_accuracy": 1})"
            "\n");
  report::Run run;
  io::read_metrics(directory / "metrics", 100, run);
  EXPECT_EQ(run.validation_sop_loss.at("").last()->value, 0.75);
  EXPECT_EQ(run.validation_sop_accuracy.at("").greatest()->value, 0.5);
  EXPECT_EQ(run.test->sop_loss, 0.625);
  EXPECT_EQ(run.test->sop_accuracy, 1);
}

TEST(ReadMetrics, SkipsDamagedLines) {
  const TemporaryDirectory directory;
  const std::string path = directory / "metrics";
  write(path,
        update_line(1, 5) + std::string(3000000, 'x') + "\n\n\xff\xfe\n{\"iteration\": \"2\"}\n[1]\n" +
            "{\"iteration\": 2, \"lm_loss\": null}\n{\"iteration\": 3, \"lm_loss\": \"4\", \"elapsed_ms\": {}}\n");
  report::Run run;
  io::read_metrics(path, 100, run);
  EXPECT_EQ(run.iterations, 3);
  EXPECT_EQ(run.not_finite, 2);
  EXPECT_EQ(run.damaged_lines, 5);
  EXPECT_EQ(run.first_damaged_line, 2);
  report::Run none;
  EXPECT_THROW(io::read_metrics(directory / "absent", 100, none), IoError);
}

TEST(ReadMetrics, KeepsTheFiguresOfTasks) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  write(path, R"({"iteration": 1, "lm_loss": 3}
{"iteration": 1, "eval_task": "piqa", "acc": 0.5, "acc_stderr": 0.1, "acc_norm": 0.75}
{"iteration": 1, "eval_task": "wikitext", "word_perplexity": 20}
{"iteration": 1, "eval_task": 3, "acc": 0.25}
{"iteration": 1, "eval_task": "mmlu", "acc": null}
)");
  report::Run run;
  io::read_metrics(path, 10, run);
  ASSERT_EQ(run.tasks[0].size(), 2u);
  EXPECT_EQ(run.tasks[0].at("piqa").last()->value, 0.5);
  EXPECT_EQ(run.tasks[0].at("mmlu").not_finite(), 1);
  EXPECT_EQ(run.tasks[1].at("piqa").last()->value, 0.75);
  EXPECT_EQ(run.tasks[3].at("wikitext").last()->value, 20);
}

TEST(ReadMetrics, KeepsTheSamplesOfTheNewestAttempt) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  write(path, R"({"iteration": 1, "lm_loss": 3}
{"iteration": 1, "samples": [{"prompt": "p", "text": "one"}, {"prompt": 5}, 7]}
{"iteration": 2, "lm_loss": 2}
{"iteration": 2, "samples": [{"prompt": "p", "text": "replaced"}]}
{"iteration": 2, "samples": 3}
{"iteration": 2, "lm_loss": 2}
{"iteration": 2, "samples": [{"prompt": "p", "text": "two"}]}
)");
  report::Run run;
  io::read_metrics(path, 10, run);
  EXPECT_EQ(run.damaged_lines, 0);
  ASSERT_EQ(run.samples.size(), 2u);
  ASSERT_EQ(run.samples[0].samples.size(), 2u);
  EXPECT_EQ(run.samples[0].samples[0].text, "one");
  EXPECT_EQ(run.samples[0].samples[1].prompt, "");
  EXPECT_EQ(run.samples[1].iteration, 2);
  EXPECT_EQ(run.samples[1].samples[0].text, "two");
}

}  // namespace
}  // namespace trireme::test
