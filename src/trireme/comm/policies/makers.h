// What makes each policy: one file a policy. See policies.h for the table.
#pragma once

#include <memory>

#include "trireme/comm/policy.h"

namespace trireme {

std::unique_ptr<Policy> make_end(const StageProblem& problem, const PolicyOptions& options);
std::unique_ptr<Policy> make_fifo(const StageProblem& problem, const PolicyOptions& options);
std::unique_ptr<Policy> make_mg_wfbp(const StageProblem& problem, const PolicyOptions& options);
std::unique_ptr<Policy> make_asc_wfbp(const StageProblem& problem, const PolicyOptions& options);
std::unique_ptr<Policy> make_p3(const StageProblem& problem, const PolicyOptions& options);
std::unique_ptr<Policy> make_bytescheduler(const StageProblem& problem,
                                           const PolicyOptions& options);
std::unique_ptr<Policy> make_byteps_queue(const StageProblem& problem,
                                          const PolicyOptions& options);
std::unique_ptr<Policy> make_us_byte(const StageProblem& problem, const PolicyOptions& options);
std::unique_ptr<Policy> make_prophet(const StageProblem& problem, const PolicyOptions& options);
std::unique_ptr<Policy> make_dear(const StageProblem& problem, const PolicyOptions& options);
std::unique_ptr<Policy> make_trirace(const StageProblem& problem, const PolicyOptions& options);

}  // namespace trireme
