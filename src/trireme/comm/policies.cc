#include "trireme/comm/policies.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/comm/policies/makers.h"

namespace trireme {
namespace {

using enum ForwardWaits;

constexpr int64_t kMegabyte = 1'000'000;

constexpr PolicyRow kPolicies[] = {
    {.name = "end",
     .summary = "all gradients when the backward is over, and nothing else meanwhile",
     .source = "Narayanan et al., PipeDream-2BW, ICML 2021",
     .waits = kAtTheEnd,
     .defaults = {.bucket_bytes = 25 * kMegabyte},
     .make = make_end},
    {.name = "wfbp",
     .summary = "each gradient when it is ready, one after the other",
     .source = "Zhang et al., Poseidon, USENIX ATC 2017",
     .waits = kForAll,
     .defaults = {},
     .make = make_fifo},
    {.name = "fifo",
     .summary = "gradients in buckets when they are ready, one after the other",
     .source = "Li et al., PyTorch Distributed, VLDB 2020",
     .waits = kForAll,
     .defaults = {.bucket_bytes = 25 * kMegabyte},
     .make = make_fifo},
    {.name = "mg-wfbp",
     .summary = "wfbp that joins neighbours where a start-up costs more than the wait",
     .source = "Shi et al., MG-WFBP, INFOCOM 2019",
     .waits = kForAll,
     .defaults = {},
     .make = make_mg_wfbp},
    {.name = "asc-wfbp",
     .summary = "wfbp that joins what has not started, two all-reduces at once",
     .source = "Shi et al., Exploiting Simultaneous Communications, INFOCOM 2021",
     .waits = kForAll,
     .shares_link = true,
     .defaults = {},
     .make = make_asc_wfbp},
    {.name = "p3",
     .summary = "small slices, those of the first layers first",
     .source = "Jayarajan et al., P3, MLSys 2019",
     .waits = kForItsLayer,
     .defaults = {.chunk_bytes = 200'000},
     .make = make_p3},
    {.name = "bytescheduler",
     .summary = "large partitions by layer, several on their way within a credit",
     .source = "Peng et al., ByteScheduler, SOSP 2019",
     .waits = kForItsLayer,
     .defaults = {.chunk_bytes = 32 * kMegabyte, .credit_bytes = 64 * kMegabyte},
     .make = make_bytescheduler},
    {.name = "byteps-queue",
     .summary = "partitions by layer within a credit, past those that do not fit",
     .source = "Jiang et al., BytePS, OSDI 2020",
     .waits = kForItsLayer,
     .defaults = {.chunk_bytes = 4'096'000, .credit_bytes = 4 * 4'096'000},
     .make = make_byteps_queue},
    {.name = "us-byte",
     .summary = "unequal blocks that end when the next gradient is ready, then by layer",
     .source = "Gao et al., US-Byte, TPDS 2024",
     .waits = kForItsLayer,
     .defaults = {.chunk_bytes = 4 * kMegabyte},
     .make = make_us_byte},
    {.name = "prophet",
     .summary = "what fits between two bursts of gradients, the most urgent first",
     .source = "Zhang et al., Prophet, ICPP 2021",
     .waits = kForItsLayer,
     .defaults = {.chunk_bytes = 4'096'000, .credit_bytes = 4 * 4'096'000},
     .make = make_prophet},
    {.name = "dear",
     .summary = "reduce-scatters behind the backward, all-gathers before the forward",
     .source = "Zhang et al., DeAR, ICDCS 2023",
     .waits = kForItsLayer,
     .defaults = {.bucket_bytes = 25 * kMegabyte},
     .make = make_dear},
    {.name = "trirace+allreduce",
     .summary = "chunks by deadline, joined when small; rows and messages as others",
     .source = "after Li et al., TriRace, TPDS 2024",
     .waits = kForItsLayer,
     .defaults = {},
     .make = make_trirace},
    {.name = "trirace+sparse",
     .summary = "and rows of embedding tables in place of the tables",
     .source = "after Li et al., TriRace, TPDS 2024",
     .waits = kForItsLayer,
     .exchanges_rows = true,
     .defaults = {},
     .make = make_trirace},
    {.name = "trirace+p2p",
     .summary = "and messages between stages before gradients at their sender",
     .source = "after Li et al., TriRace, TPDS 2024",
     .waits = kForItsLayer,
     .exchanges_rows = true,
     .messages_first = true,
     .defaults = {},
     .make = make_trirace},
    {.name = "trirace",
     .summary = "and gradients held while a message is on one of their links",
     .source = "after Li et al., TriRace, TPDS 2024",
     .waits = kForItsLayer,
     .exchanges_rows = true,
     .messages_first = true,
     .has_arbiter = true,
     .defaults = {},
     .make = make_trirace},
};

int64_t or_default(int64_t value, int64_t otherwise) { return value > 0 ? value : otherwise; }

}  // namespace

std::span<const PolicyRow> policy_rows() { return kPolicies; }

Result<const PolicyRow*> find_policy(std::string_view name) {
  std::string known;
  for (const PolicyRow& row : kPolicies) {
    if (row.name == name) return &row;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  return Error{fmt::format("{} is no communication policy; there are {}", in_quotes(name), known)};
}

PolicyOptions with_defaults(const PolicyRow& row, PolicyOptions options) {
  const PolicyOptions& defaults = row.defaults;
  return {.bucket_bytes = or_default(options.bucket_bytes, defaults.bucket_bytes),
          .chunk_bytes = or_default(options.chunk_bytes, defaults.chunk_bytes),
          .credit_bytes = or_default(options.credit_bytes, defaults.credit_bytes)};
}

}  // namespace trireme
