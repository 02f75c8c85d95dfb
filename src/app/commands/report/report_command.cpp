#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>

#include "src/app/commands/commands.hpp"
#include "src/app/commands/report/page_server.hpp"
#include "src/app/commands/report/report_input.hpp"
#include "src/app/job/flight_recorder.hpp"
#include "src/app/job/job.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/field_names.hpp"
#include "src/app/options/text_files.hpp"
#include "src/base/machine.hpp"
#include "src/report/page.hpp"

namespace trireme::app {
namespace {

constexpr int renewal_seconds = 2;

report::Page empty_page() {
  report::Page page;
  page.version = version();
  page.made_at = std::time(nullptr);
  page.spell = [](std::string_view text) { return with_flags(text); };
  return page;
}

/// Page on runs that go on. It is made again if a file changed, at most a tenth of the time.
class FollowedPage {
 public:
  explicit FollowedPage(const std::vector<std::string>& paths) : paths_(paths), started_at_(std::time(nullptr)) {}

  ServedPage current() {
    const auto begin = std::chrono::steady_clock::now();
    if (begin >= next_ && (stamp_.empty() || stamp_ != stamp_of(sources_))) {
      make();
      const auto end = std::chrono::steady_clock::now();
      next_ = end + 9 * (end - begin);
    }
    return {html_, fmt::format("\"{}-{}\"", started_at_, version_)};
  }

 private:
  void make() {
    report::Page page = empty_page();
    page.renewal_seconds = renewal_seconds;
    std::string html;
    try {
      // The stamp is older than what is read: a later change is in the next page. New files are read once more.
      for (bool is_known = false; !is_known;) {
        stamp_ = stamp_of(sources_);
        page.runs = read_runs(paths_, "");
        std::vector<std::string> sources;
        for (const report::Run& run : page.runs) sources.insert(sources.end(), run.sources.begin(), run.sources.end());
        is_known = sources == sources_;
        sources_ = std::move(sources);
      }
      html = report::html_of(page);
    } catch (const Error& problem) {
      stamp_.clear();
      html = report::html_of_message(page, with_flags(problem.what()));
    }
    html_ = std::move(html);
    ++version_;
  }

  const std::vector<std::string>& paths_;
  std::int64_t started_at_;
  std::vector<std::string> sources_;
  std::string stamp_, html_;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
  std::int64_t version_ = 0;
};

void follow(const std::vector<std::string>& paths, const std::string& host, int port) {
  FollowedPage page(paths);
  const auto started = [&](int used_port) {
    fmt::print("The page is at http://{0}:{1}/ until Ctrl-C. To read it from another machine: ssh -L {1}:{0}:{1} {2}\n",
               host.find(':') == std::string::npos ? host : "[" + host + "]", used_port, host_name());
    std::fflush(stdout);
  };
  serve_page(host, port, started, [&] { return page.current(); });
}

}  // namespace

int report_command(const CommandLine& line) {
  std::vector<std::string> paths;
  std::string output;
  bool follows = false, is_flight = false;
  std::optional<std::string> host;
  std::optional<int> port;
  Options options(
      line.command(),
      "Writes a report on one or several runs, as one HTML file without network access: plots of loss, validation, "
      "learning rate, gradient norm, speed and memory; the grid, the options, the attempts of the job, checkpoints and "
      "exit codes. With --follow, serves it to a browser while the runs go on.");
  options.add_arguments(
      "RUN", &paths,
      "A file of --metrics-file, its folder (such as the run folder of a batch file), or a folder of --save. Several "
      "runs are compared in the same plots.");
  options.add("output", &output, "FILE.html", "File of the page; replaces an existing one. Required without --follow.");
  options.add_flag("follow", &follows, "Serve the page to browsers of this machine, renewed with each new point.");
  options.add("port", &port, "N", "Port of --follow; 0 takes a free one. Default: 8008.", between(0, 65535));
  options.add("host", &host, "ADDRESS",
              "Address of --follow. Default: 127.0.0.1, which only this machine reaches. 0.0.0.0: everyone reaches it, "
              "without a password.");
  options.add_flag(
      "flight", &is_flight,
      "Print which rank of a job that hung has not called what the others have: RUN is the folder of train's "
      "--flight-record.");
  if (!line.read(options)) return 0;
  if (is_flight) {
    TRIREME_CHECK(paths.size() == 1 && output.empty() && !follows, ConfigError,
                  "--flight prints the records of one folder: give it alone");
    fmt::print("{}", read_flights(paths.front()));
    return 0;
  }
  TRIREME_CHECK(follows || !output.empty(), ConfigError, "--output must be given, or --follow");
  TRIREME_CHECK(!follows || output.empty(), ConfigError, "--output and --follow exclude each other: write or serve");
  TRIREME_CHECK(follows || (!host && !port), ConfigError, "--host and --port need --follow");
  if (follows) {
    follow(paths, host.value_or("127.0.0.1"), port.value_or(8008));
    return 0;
  }
  report::Page page = empty_page();
  page.runs = read_runs(paths, output);
  write_text_file("output", output, report::html_of(page));
  return 0;
}

}  // namespace trireme::app
