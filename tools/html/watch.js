// For --watch: asks for the page again while the run continues and puts what is new into the elements
// that are there, so that the focus, what is open and the place on the page stay.
const renew = (old, now) => {
  for (const a of now.attributes)
    if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
  if (old.classList.contains('values')) return;
  let at = old.firstChild;
  for (const part of [...now.childNodes]) {
    const own = part.id && [...old.children].find(e => e.id === part.id);
    while (own && at && at !== own) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    const same = at && at.nodeName === part.nodeName && (at.id || '') === (part.id || '');
    if (!same) {
      old.insertBefore(document.importNode(part, true), at);
      continue;
    }
    if (at.nodeType === Node.ELEMENT_NODE) renew(at, part);
    else if (at.data !== part.data) at.data = part.data;
    at = at.nextSibling;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
};
const watch = document.querySelector('.watch');
const button = watch.querySelector('button'), state = watch.querySelector('[role=status]');
const show_state = line => { if (state.textContent !== line) state.textContent = line; };
let paused = false, timer = 0;
const again = () => {
  clearTimeout(timer);
  timer = setTimeout(ask, watch.dataset.seconds * 1000);
};
const stop = line => {
  paused = true;
  button.textContent = 'Follow the run';
  show_state(line);
};
const ask = async () => {
  try {
    const answer = await fetch(location.href, { cache: 'no-store' });
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    if (paused) return;
    renew(document.querySelector('main'), page.querySelector('main'));
    show_charts();
    if (!page.querySelector('.watch')) return stop('The run has ended.');
    show_state('The page follows the run.');
  } catch (error) {
    if (!paused) show_state('No answer from engine report. The page shows what it said last.');
  }
  if (!paused) again();
};
button.addEventListener('click', () => {
  clearTimeout(timer);
  if (!paused) return stop('Paused.');
  paused = false;
  button.textContent = 'Pause';
  ask();
});
watch.hidden = false;
again();
