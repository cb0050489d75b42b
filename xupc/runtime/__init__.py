"""The running job: its services, the executor with the one wait, the queue of
asynchronous calls, and the state of teams. Plans, operands and settings come in. No argument of a
public function is checked here."""
