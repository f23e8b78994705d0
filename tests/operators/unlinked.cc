// Needs a function that no library has.
extern "C" void defined_nowhere();
namespace {
struct Caller {
  Caller() { defined_nowhere(); }
} caller;
}  // namespace
