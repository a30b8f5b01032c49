// Requests to this server alone, and the stream of what changes. Addresses are relative: a prefix needs no setting.
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem?.message || `the dashboard answered ${status}`);
    this.status = status;
    this.hint = problem?.hint || "";
    this.kind = problem?.error || "Error";
  }
}

async function asked(path, options = {}) {
  let answer;
  try {
    answer = await fetch(`api/${path}`, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, { error: "Unreachable", message: "the dashboard does not answer", hint: "is its command still running?" });
  }
  const document = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refusal(answer.status, document);
  return document;
}

export const get = (path, signal) => asked(path, { signal });

export const post = (path, body) => asked(path, {
  method: "POST",
  headers: { "content-type": "application/json", "x-onceward": "1" },
  body: JSON.stringify(body),
});

export const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

/** All jobs as they change; the browser connects again by itself. */
export class Feed {
  constructor({ onJobs, onState }) {
    this.jobs = new Map();
    this.onJobs = onJobs;
    this.onState = onState;
    this.isLive = false;
  }

  open() {
    this.source = new EventSource("api/events");
    this.source.addEventListener("open", () => this.alive());
    this.source.addEventListener("same", () => this.alive());
    this.source.addEventListener("jobs", (event) => this.take(JSON.parse(event.data)));
    this.source.addEventListener("error", () => {
      this.isLive = false;
      this.onState("lost");
      // Closed for good (the server answered with an error): begin anew, slowly.
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => this.open(), 3000);
    });
  }

  alive() {
    this.isLive = true;
    this.seenAt = Date.now() / 1000;
    this.onState("live");
  }

  take({ all, changed }) {
    this.alive();
    const next = new Map(changed.map((job) => [job.id, job]));
    this.jobs = new Map(all.map((id) => [id, next.get(id) || this.jobs.get(id)]).filter(([, job]) => job));
    this.onJobs(this.jobs, next);
  }
}
