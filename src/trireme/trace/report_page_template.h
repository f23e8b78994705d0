// The text of report_page.html, which the build puts into the program.
#pragma once

#include <string_view>

namespace trireme {

// "@DATA@" in it stands for what report_page() shows, as JSON.
extern const std::string_view kReportPageTemplate;

}  // namespace trireme
