#include "io/json/selftest_json.hpp"

#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"

namespace trireme::io {

std::string selftest_json(const selftest::Report& report) {
  using nlohmann::ordered_json;
  ordered_json results = ordered_json::array();
  for (const selftest::Result& r : report.results) {
    results.push_back({{"check", r.check},
                       {"item", r.item},
                       {"verdict", selftest::name_of(r.verdict)},
                       {"node", r.host},
                       {"rank", r.rank},
                       {"value", r.value},
                       {"unit", r.unit},
                       {"expected", r.expected == 0 ? ordered_json() : ordered_json(r.expected)},
                       {"detail", r.detail}});
  }
  const ordered_json whole = {{"passed", report.passed()},
                              {"nodes", report.nodes},
                              {"bad_nodes", report.bad_nodes},
                              {"results", std::move(results)}};
  return json_dump(whole, 1) + "\n";
}

}  // namespace trireme::io
